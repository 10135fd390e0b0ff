"""The `input` of a Responses request: text, or the items of a conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noria.chats.custom import arguments_of
from noria.server.encoders.response_items import unsealed
from noria.server.errors import ApiError

_ROLES = ("user", "assistant", "system", "developer")
# type of a content part -> the field that holds its text
_TEXT_FIELDS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}

_MESSAGE_SCHEMA = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "type": {"const": "message"},
        "role": {"enum": list(_ROLES)},
        "content": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"enum": list(_TEXT_FIELDS)}},
                    },
                },
            ]
        },
    },
}
_CALL_SCHEMA = {
    "type": "object",
    "required": ["type", "call_id", "name", "arguments"],
    "properties": {
        "type": {"const": "function_call"},
        "call_id": {"type": "string"},
        "name": {"type": "string"},
        "arguments": {"type": "string"},
    },
}
_OUTPUT_SCHEMA = {
    "type": "object",
    "required": ["type", "call_id", "output"],
    "properties": {
        "type": {"const": "function_call_output"},
        "call_id": {"type": "string"},
        "output": {"type": "string"},
    },
}
_CUSTOM_CALL_SCHEMA = {
    "type": "object",
    "required": ["type", "call_id", "name", "input"],
    "properties": {
        "type": {"const": "custom_tool_call"},
        "call_id": {"type": "string"},
        "name": {"type": "string"},
        "input": {"type": "string"},
    },
}
_CUSTOM_OUTPUT_SCHEMA = {
    "type": "object",
    "required": ["type", "call_id", "output"],
    "properties": {
        "type": {"const": "custom_tool_call_output"},
        "call_id": {"type": "string"},
        "output": {"type": "string"},
    },
}
_REASONING_SCHEMA = {"type": "object", "required": ["type"], "properties": {"type": {"const": "reasoning"}}}
INPUT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "anyOf": [
                    _MESSAGE_SCHEMA,
                    _CALL_SCHEMA,
                    _OUTPUT_SCHEMA,
                    _CUSTOM_CALL_SCHEMA,
                    _CUSTOM_OUTPUT_SCHEMA,
                    _REASONING_SCHEMA,
                ]
            },
        },
    ]
}

Messages = list[dict[str, Any]]


def input_messages(stated: Any, instructions: str | None) -> Messages:
    """The messages as the chat template takes them, the instructions first.

    Reasoning, words and calls of the assistant's in a row are one message. Raises ApiError that says which item is at
    fault.
    """
    messages: Messages = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(stated, str):
        return [*messages, {"role": "user", "content": stated}]
    if not isinstance(stated, list):
        raise _fault("input must be a string or a list of items")
    if not stated:
        raise _fault("input is empty; it needs at least one item")
    for i, item in enumerate(stated):
        _add(messages, item, f"input[{i}]")
    if all("content" not in message and "tool_calls" not in message for message in messages):
        raise _fault("input holds nothing but reasoning; a chat needs a message")
    return [{"content": "", **message} for message in messages]


def _add(messages: Messages, item: Any, where: str) -> None:
    if not isinstance(item, dict):
        raise _fault(f"{where} must be an object")
    kind = item.get("type", "message")
    if not isinstance(kind, str) or kind not in _ITEMS:
        raise _fault(
            f"{where} is of the type {kind!r:.80}; this server supports items of type {', '.join(_ITEMS)}"
        )
    _ITEMS[kind](messages, item, where)


def _add_message(messages: Messages, item: dict[str, Any], where: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise _fault(f"{where}.role must be one of {', '.join(_ROLES)}")
    content = _content(item, where)
    if role == "assistant" and _is_open(messages) and "content" not in messages[-1]:
        messages[-1]["content"] = content
        return
    # Templates know no developer, and many drop whom they do not know.
    messages.append({"role": "system" if role == "developer" else role, "content": content})


def _add_call(messages: Messages, item: dict[str, Any], where: str) -> None:
    for name in ("call_id", "name", "arguments"):
        if not isinstance(item.get(name), str):
            raise _fault(f"{where}.{name} must be a string")
    function = {"name": item["name"], "arguments": item["arguments"]}
    call = {"id": item["call_id"], "type": "function", "function": function}
    _turn_of_assistant(messages).setdefault("tool_calls", []).append(call)


def _add_custom_call(messages: Messages, item: dict[str, Any], where: str) -> None:
    if not isinstance(item.get("input"), str):
        raise _fault(f"{where}.input must be a string")
    _add_call(messages, {**item, "arguments": arguments_of(item["input"])}, where)


def _add_output(messages: Messages, item: dict[str, Any], where: str) -> None:
    if not isinstance(item.get("call_id"), str):
        raise _fault(f"{where}.call_id must be a string")
    content = _content(item, where, "output")
    messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})


def _add_reasoning(messages: Messages, item: dict[str, Any], where: str) -> None:
    """Its text, or what was sealed here; what others sealed cannot be read, and is left out."""
    parts = item.get("content") or []
    if not isinstance(parts, list):
        raise _fault(f"{where}.content must be a list of parts")
    text = "".join(
        part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
    kept = item.get("encrypted_content")
    if not text and isinstance(kept, str):
        text = unsealed(kept) or ""
    if text:
        _begin_assistant(messages)["reasoning_content"] = text


def _turn_of_assistant(messages: Messages) -> dict[str, Any]:
    return messages[-1] if _is_open(messages) else _begin_assistant(messages)


def _begin_assistant(messages: Messages) -> dict[str, Any]:
    messages.append({"role": "assistant"})
    return messages[-1]


def _is_open(messages: Messages) -> bool:
    """More of the assistant's belongs to the last message."""
    return bool(messages) and messages[-1]["role"] == "assistant"


_ITEMS: dict[str, Callable[[Messages, dict[str, Any], str], None]] = {
    "message": _add_message,
    "function_call": _add_call,
    "function_call_output": _add_output,
    "custom_tool_call": _add_custom_call,
    "custom_tool_call_output": _add_output,
    "reasoning": _add_reasoning,
}


def _content(item: dict[str, Any], where: str, name: str = "content") -> str | list[dict[str, str]]:
    content = item.get(name)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _fault(f"{where}.{name} must be a string or a list of parts")
    return [{"type": "text", "text": _text(part, f"{where}.{name}[{i}]")} for i, part in enumerate(content)]


def _text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise _fault(f"{where} must be an object with a type")
    if kind not in _TEXT_FIELDS:
        raise _fault(f"{where} is of the type {kind!r:.80}; this server supports {', '.join(_TEXT_FIELDS)}")
    text = part.get(_TEXT_FIELDS[kind])
    if not isinstance(text, str):
        raise _fault(f"{where}.{_TEXT_FIELDS[kind]} must be a string")
    return text


def _fault(message: str) -> ApiError:
    return ApiError(message, param="input")
