"""The `input` of a Responses request: text, or the items of a conversation."""

from __future__ import annotations

from typing import Any

from noria.server.errors import ApiError

_ROLES = ("user", "assistant", "system", "developer")
# type of a content part -> the field that holds its text
_TEXT_FIELDS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}

INPUT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {
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
            },
        },
    ]
}


def input_messages(stated: Any, instructions: str | None) -> list[dict[str, Any]]:
    """The messages as the chat template takes them, the instructions first.

    Raises ApiError that says which item is at fault.
    """
    messages = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(stated, str):
        return [*messages, {"role": "user", "content": stated}]
    if not isinstance(stated, list):
        raise _fault("input must be a string or a list of items")
    if not stated:
        raise _fault("input is empty; it needs at least one item")
    return messages + [_message(item, f"input[{i}]") for i, item in enumerate(stated)]


def _message(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise _fault(f"{where} must be an object")
    kind = item.get("type", "message")
    if kind != "message":
        raise _fault(f"{where} is of the type {kind!r:.80}; this server supports items of type message")
    role = item.get("role")
    if role not in _ROLES:
        raise _fault(f"{where}.role must be one of {', '.join(_ROLES)}")
    # Templates know no developer, and many drop whom they do not know.
    return {"role": "system" if role == "developer" else role, "content": _content(item, where)}


def _content(item: dict[str, Any], where: str) -> str | list[dict[str, str]]:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _fault(f"{where}.content must be a string or a list of parts")
    return [{"type": "text", "text": _text(part, f"{where}.content[{i}]")} for i, part in enumerate(content)]


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
