"""The `system` and `messages` of a Messages request."""

from __future__ import annotations

from typing import Any

from noria.server.errors import ApiError

_ROLES = ("user", "assistant", "system")
# A line that a client puts into its system prompt for those who bill it. It is not meant for the model, and since it
# changes from call to call it would keep everything behind it out of the prefix cache.
_BILLING_LINE = "x-anthropic-billing-header"

_TEXT_OR_BLOCKS = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"enum": ["text", "thinking"]}},
            },
        },
    ]
}
SYSTEM_SCHEMA = {"anyOf": [*_TEXT_OR_BLOCKS["anyOf"], {"type": "null"}]}
MESSAGES_SCHEMA = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": list(_ROLES)}, "content": _TEXT_OR_BLOCKS},
    },
}


def chat_messages(stated: Any, system: Any) -> list[dict[str, Any]]:
    """The messages as the chat template takes them, the system prompt first.

    Turns of one role in a row are one turn. Raises ApiError that says which block is at fault.
    """
    if not isinstance(stated, list):
        raise _fault("messages must be a list of messages", "messages")
    if not stated:
        raise _fault("messages is empty; a chat needs at least one message", "messages")
    messages: list[dict[str, Any]] = []
    if system is not None:
        _add(messages, "system", _blocks(system, "system"))
    for i, message in enumerate(stated):
        where = f"messages[{i}]"
        if not isinstance(message, dict):
            raise _fault(f"{where} must be an object", where)
        if message.get("role") not in _ROLES:
            raise _fault(f"{where}.role must be one of {', '.join(_ROLES)}", where)
        _add(messages, message["role"], _blocks(message.get("content"), f"{where}.content"))
    return messages


def _add(messages: list[dict[str, Any]], role: str, blocks: list[dict[str, str]]) -> None:
    texts = [block for block in blocks if block["type"] == "text"]
    if role == "system":
        texts = [{**block, "text": stripped} for block in texts if (stripped := _unbilled(block["text"]))]
        if not texts:
            return
    if not messages or messages[-1]["role"] != role:
        messages.append({"role": role, "content": []})
    messages[-1]["content"] += texts
    thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
    if thoughts:
        earlier = messages[-1].get("reasoning_content")
        messages[-1]["reasoning_content"] = "\n".join([earlier, *thoughts] if earlier else thoughts)


def _blocks(content: Any, where: str) -> list[dict[str, str]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise _fault(f"{where} must be a string or a list of blocks", where)
    return [_block(block, f"{where}[{i}]") for i, block in enumerate(content)]


def _block(block: Any, where: str) -> dict[str, str]:
    """The block with what the template needs of it: what it says. (Where a client wants it cached is its own affair:
    everything is.)
    """
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise _fault(f"{where} must be an object with a type", where)
    if kind not in ("text", "thinking"):
        raise _fault(
            f"{where} is a block of type {kind!r:.80}; this server supports text and thinking", where
        )
    text = block.get(kind)
    if not isinstance(text, str):
        raise _fault(f"{where}.{kind} must be a string", where)
    return {"type": kind, kind: text}


def _unbilled(text: str) -> str:
    if _BILLING_LINE not in text:
        return text
    return "\n".join(line for line in text.split("\n") if not line.startswith(_BILLING_LINE))


def _fault(message: str, where: str) -> ApiError:
    return ApiError(message, param=where.partition("[")[0])
