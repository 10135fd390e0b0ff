"""The `messages` of a chat request: their shape is checked here, their text is prepared by the chat template."""

from __future__ import annotations

from typing import Any

from noria.chats.custom import arguments_of
from noria.server.errors import ApiError

ROLES = ("system", "developer", "user", "assistant", "tool")
_REASONING = ("reasoning", "reasoning_content")


def _part_schema(kind: str, field: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", field],
        "properties": {"type": {"const": kind}, field: {"type": "string"}},
    }


def _named_schema(**others: Any) -> dict[str, Any]:
    """Of an object with a name, and what else it must have."""
    members = {"name": {"type": "string"}, **others}
    return {"type": "object", "required": list(members), "properties": members}


_CONTENT = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "anyOf": [
                    _part_schema("text", "text"),
                    _part_schema("refusal", "refusal"),
                    _part_schema("thinking", "thinking"),
                ]
            },
        },
    ]
}
_TOOL_CALLS = {
    "type": ["array", "null"],
    "items": {
        "anyOf": [
            {
                "type": "object",
                "required": ["function"],
                "properties": {
                    "type": {"not": {"const": "custom"}},
                    "function": _named_schema(),
                },
            },
            {
                "type": "object",
                "required": ["type", "custom"],
                "properties": {
                    "type": {"const": "custom"},
                    "custom": _named_schema(input={"type": "string"}),
                },
            },
        ]
    },
}
MESSAGES_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": {"enum": [role for role in ROLES if role != "assistant"]},
                    "content": _CONTENT,
                },
            },
            {
                "type": "object",
                "required": ["role"],
                "properties": {
                    "role": {"const": "assistant"},
                    "content": {"anyOf": [*_CONTENT["anyOf"], {"type": "null"}]},
                    "reasoning": {"type": ["string", "null"]},
                    "reasoning_content": {"type": ["string", "null"]},
                    "tool_calls": _TOOL_CALLS,
                },
            },
        ]
    },
}


def template_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages as the chat template takes them: thinking parts apart from text, no developer role.

    Raises ApiError saying which message is at fault.
    """
    if not isinstance(messages, list):
        raise ApiError("messages must be a list of messages", param="messages")
    if not messages:
        raise ApiError("messages is empty; a chat needs at least one message", param="messages")
    return [_template_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def final_assistant_text(messages: list[dict[str, Any]]) -> str:
    """The text of the last message, if it is the assistant's; messages as `template_messages` gives them."""
    final = messages[-1]
    content = final.get("content")
    if final["role"] != "assistant" or not content:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or part.get("refusal") or "" for part in content)


def _template_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise ApiError(f"{where} must be an object", param="messages")
    role = message.get("role")
    if role not in ROLES:
        raise ApiError(f"{where}.role must be one of {', '.join(ROLES)}", param="messages")
    # Templates know no developer, and many drop whom they do not know.
    prepared = {**message, "role": "system" if role == "developer" else role}
    _check_content(message.get("content"), role, where)
    if isinstance(message.get("tool_calls"), list):
        prepared["tool_calls"] = [
            _as_function(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(message["tool_calls"])
        ]
    _check_fields(prepared, where)
    if isinstance(message.get("content"), list):
        _take_thinking_out(prepared)
    return prepared


def _check_content(content: Any, role: str, where: str) -> None:
    if content is None and role != "assistant":
        raise ApiError(f"{where}.content is missing", param="messages")
    if content is not None and not isinstance(content, (str, list)):
        raise ApiError(f"{where}.content must be a string or a list of parts", param="messages")
    for i, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise ApiError(f"{where}.content[{i}] must be an object with a type", param="messages")
        if part["type"] == "thinking" and not isinstance(part.get("thinking"), str):
            raise ApiError(f"{where}.content[{i}].thinking must be a string", param="messages")


def _check_fields(message: dict[str, Any], where: str) -> None:
    for name in _REASONING:
        if not isinstance(message.get(name, ""), (str, type(None))):
            raise ApiError(f"{where}.{name} must be a string", param="messages")
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise ApiError(f"{where}.tool_calls must be a list", param="messages")
    for i, call in enumerate(calls or ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ApiError(
                f"{where}.tool_calls[{i}] must be an object with a function that has a name", param="messages"
            )
        if not isinstance(function.get("arguments", ""), (str, dict, type(None))):
            raise ApiError(f"{where}.tool_calls[{i}].function.arguments must be JSON text", param="messages")


def _as_function(call: Any, where: str) -> Any:
    """A call of a custom tool as one of a function, which is what templates know."""
    if not isinstance(call, dict) or call.get("type") != "custom":
        return call
    custom = call.get("custom")
    if not isinstance(custom, dict) or not isinstance(custom.get("input"), str):
        raise ApiError(
            f"{where}.custom must be an object with a name and an input, a string", param="messages"
        )
    function = {"name": custom.get("name"), "arguments": arguments_of(custom["input"])}
    return {"id": call.get("id"), "type": "function", "function": function}


def _take_thinking_out(message: dict[str, Any]) -> None:
    parts = message["content"]
    thinking = [part["thinking"] for part in parts if part["type"] == "thinking"]
    message["content"] = [part for part in parts if part["type"] != "thinking"]
    if thinking and not any(message.get(name) for name in _REASONING):
        message["reasoning_content"] = "\n".join(thinking)
