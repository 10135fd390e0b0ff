"""The `system` and `messages` of a Messages request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from noria.server.errors import ApiError

_ROLES = ("user", "assistant", "system")
# A line that a client puts into its system prompt for those who bill it. It is not meant for the model, and since it
# changes from call to call it would keep everything behind it out of the prefix cache.
_BILLING_LINE = "x-anthropic-billing-header"

# type of a block -> the fields that it must have, and what they are
_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "redacted_thinking": {},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
}
_WORDS: dict[type, str] = {str: "a string", dict: "an object"}
_OF_RESULTS = ("text",)
_OF_SYSTEM = ("text", "thinking")
_THOUGHTS = ("thinking", "redacted_thinking")
_KINDS: dict[str, tuple[str, ...]] = {
    "user": ("text", *_THOUGHTS, "tool_result"),
    "assistant": ("text", *_THOUGHTS, "tool_use"),
    "system": _OF_SYSTEM,
}


def _blocks_schema(kinds: Collection[str]) -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "string"},
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["type"],
                    "properties": {"type": {"enum": list(kinds)}},
                },
            },
        ]
    }


SYSTEM_SCHEMA = {"anyOf": [*_blocks_schema(_OF_SYSTEM)["anyOf"], {"type": "null"}]}
MESSAGES_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": list(_ROLES)}, "content": _blocks_schema(_FIELDS)},
    },
}

Messages = list[dict[str, Any]]


def chat_messages(stated: Any, system: Any) -> list[dict[str, Any]]:
    """The messages as the chat template takes them, the system prompt first.

    Turns of one role in a row are one turn. What a tool returned is a message of its own. Raises ApiError that says
    which block is at fault.
    """
    if not isinstance(stated, list):
        raise _fault("messages must be a list of messages", "messages")
    if not stated:
        raise _fault("messages is empty; a chat needs at least one message", "messages")
    messages: Messages = []
    if system is not None:
        _add(messages, "system", _blocks(system, "system", _OF_SYSTEM))
    for i, message in enumerate(stated):
        where = f"messages[{i}]"
        if not isinstance(message, dict):
            raise _fault(f"{where} must be an object", where)
        if message.get("role") not in _ROLES:
            raise _fault(f"{where}.role must be one of {', '.join(_ROLES)}", where)
        role = message["role"]
        _add(messages, role, _blocks(message.get("content"), f"{where}.content", _KINDS[role]))
    return messages


def _add(messages: Messages, role: str, blocks: list[dict[str, Any]]) -> None:
    if role == "system":
        blocks = [_unbilled(block) for block in blocks if block["type"] == "text"]
        blocks = [block for block in blocks if block["text"]]
    elif not blocks:
        _turn_of(messages, role)
    for block in blocks:
        _ADDERS[block["type"]](messages, role, block)


def _turn_of(messages: Messages, role: str) -> dict[str, Any]:
    """The message that more of this role belongs to."""
    if not messages or messages[-1]["role"] != role:
        messages.append({"role": role, "content": []})
    return messages[-1]


def _add_text(messages: Messages, role: str, block: dict[str, Any]) -> None:
    _turn_of(messages, role)["content"].append({"type": "text", "text": block["text"]})


def _add_thinking(messages: Messages, role: str, block: dict[str, Any]) -> None:
    turn = _turn_of(messages, role)
    earlier = turn.get("reasoning_content")
    turn["reasoning_content"] = f"{earlier}\n{block['thinking']}" if earlier else block["thinking"]


def _add_call(messages: Messages, role: str, block: dict[str, Any]) -> None:
    function = {"name": block["name"], "arguments": block["input"]}
    call = {"id": block["id"], "type": "function", "function": function}
    _turn_of(messages, role).setdefault("tool_calls", []).append(call)


def _add_result(messages: Messages, role: str, block: dict[str, Any]) -> None:
    messages.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]})


_ADDERS: dict[str, Callable[[Messages, str, dict[str, Any]], None]] = {
    "text": _add_text,
    "thinking": _add_thinking,
    "redacted_thinking": lambda messages, role, block: None,  # only who made it can read it
    "tool_use": _add_call,
    "tool_result": _add_result,
}


def _blocks(content: Any, where: str, kinds: Collection[str]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise _fault(f"{where} must be a string or a list of blocks", where)
    return [_block(block, f"{where}[{i}]", kinds) for i, block in enumerate(content)]


def _block(block: Any, where: str, kinds: Collection[str]) -> dict[str, Any]:
    """The block with what the template needs of it: what it says. (Where a client wants it cached is its own affair:
    everything is.)
    """
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise _fault(f"{where} must be an object with a type", where)
    if kind not in kinds:
        raise _fault(
            f"{where} is a block of type {kind!r:.80}; this server supports {', '.join(kinds)}", where
        )
    for name, wanted in _FIELDS[kind].items():
        if not isinstance(block.get(name), wanted):
            raise _fault(f"{where}.{name} must be {_WORDS[wanted]}", where)
    told = {"type": kind, **{name: block[name] for name in _FIELDS[kind]}}
    if kind == "tool_result":
        told["content"] = _blocks(block.get("content") or "", f"{where}.content", _OF_RESULTS)
    return told


def _unbilled(block: dict[str, Any]) -> dict[str, Any]:
    text = block["text"]
    if _BILLING_LINE not in text:
        return block
    kept = [line for line in text.split("\n") if not line.startswith(_BILLING_LINE)]
    return {**block, "text": "\n".join(kept)}


def _fault(message: str, where: str) -> ApiError:
    return ApiError(message, param=where.partition("[")[0])
