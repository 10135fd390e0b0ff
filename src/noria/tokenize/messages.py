"""Chat messages in the form that chat templates are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from noria.config.errors import RequestError

# type of a content part -> the field that holds its text
_TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


class ContentFormat(Enum):
    """What a template takes a message's content to be."""

    TEXT = "text"
    PARTS = "parts"  # a list of {"type": "text", "text": ...}
    EITHER = "either"  # it looks which of the two it got


def prepare_messages(messages: Sequence[Mapping[str, Any]], content: ContentFormat) -> list[dict[str, Any]]:
    """Messages of an API request as a template of that content format expects them.

    - Fields that are None are absent.
    - Text parts are joined by newlines for a template that takes text, text becomes a part for one that takes
      parts.
    - Arguments of tool calls are objects, not JSON in a string.
    - Reasoning goes by every name that templates use for it.

    The given messages are left alone. Raises RequestError (param "messages") for what is not a text message.
    """
    if not messages:
        raise RequestError("messages is empty; a chat needs at least one message", "messages")
    return [_prepare(message, f"messages[{index}]", content) for index, message in enumerate(messages)]


def _prepare(message: Mapping[str, Any], place: str, content_format: ContentFormat) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"{place} must be an object with a role", "messages")
    prepared = {name: value for name, value in message.items() if value is not None}
    if "content" in prepared:
        prepared["content"] = _prepare_content(prepared["content"], f"{place}.content", content_format)
    if isinstance(prepared.get("tool_calls"), Sequence):
        prepared["tool_calls"] = [_prepare_call(call) for call in prepared["tool_calls"]]
    reasoning = next((prepared[name] for name in _REASONING_FIELDS if name in prepared), None)
    if reasoning is not None:
        prepared = {"thinking": reasoning, **prepared, "reasoning_content": reasoning}
    return prepared


def _prepare_content(content: Any, place: str, content_format: ContentFormat) -> Any:
    if isinstance(content, str):
        takes_parts = content_format is ContentFormat.PARTS
        return [{"type": "text", "text": content}] if takes_parts else content
    if not isinstance(content, Sequence):
        raise RequestError(f"{place} must be a string or a list of text parts", "messages")
    texts = [_part_text(part, f"{place}[{index}]") for index, part in enumerate(content)]
    if content_format is ContentFormat.TEXT:
        return "\n".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _part_text(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _TEXT_FIELDS:
        found = f"the type {kind!r:.80}" if isinstance(part, Mapping) else f"{part!r:.80}"
        supported = ", ".join(_TEXT_FIELDS)
        raise RequestError(f"{place} is {found}; supported are parts of type {supported}", "messages")
    text = part.get(_TEXT_FIELDS[kind])
    if not isinstance(text, str):
        raise RequestError(f"{place} must have a string as its {_TEXT_FIELDS[kind]}", "messages")
    return text


def _prepare_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": _parse_arguments(function["arguments"])}}


def _parse_arguments(text: str) -> Any:
    """The object that the text spells; the text itself when it spells none (a model may have written it)."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return text
    return arguments if isinstance(arguments, dict) else text
