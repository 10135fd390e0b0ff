"""Tools, calls and their results as plain text, for chat templates that know of none.

The tags are those that the Hermes models were trained with, and many after them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_EXPLANATION = """\
You can use the tools below. Each line describes one in JSON: its name, what it does, the schema of its arguments.
<tools>
{tools}
</tools>
Use a tool where it helps with the answer. To call one, write its name and its arguments as JSON between these tags, \
once for each call:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
What it returns comes between <tool_response> tags."""


def spelt_out(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> list[Mapping[str, Any]]:
    """The messages with everything about tools in the text of system, assistant and user.

    The given messages are left alone.
    """
    told: list[Mapping[str, Any]] = []
    before: Mapping[str, Any] = {}
    for message in messages:
        if message.get("role") == "tool":
            response = f"<tool_response>\n{_text_of(message.get('content'))}\n</tool_response>"
            # Responses in a row are one turn of the user's.
            turn = told.pop() if before.get("role") == "tool" else {"role": "user"}
            told.append(_with_text(turn, response))
        elif message.get("tool_calls"):
            told.append(_with_calls(message))
        else:
            told.append(message)
        before = message
    return _explained(told, tools) if tools else told


def _explained(
    messages: list[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    text = _EXPLANATION.format(tools=lines)
    if messages and messages[0].get("role") == "system":
        return [_with_text(messages[0], text), *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _with_calls(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = [call.get("function", {}) for call in message["tool_calls"] if isinstance(call, Mapping)]
    text = "\n".join(f"<tool_call>\n{_written(call)}\n</tool_call>" for call in calls)
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return _with_text(rest, text)


def _written(call: Mapping[str, Any]) -> str:
    arguments = call.get("arguments") or {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'{{"name": {json.dumps(call.get("name"), ensure_ascii=False)}, "arguments": {text}}}'


def _text_of(content: Any) -> str:
    if isinstance(content, Sequence) and not isinstance(content, str):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)


def _with_text(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The message with more text behind its own."""
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        return {**message, "content": [*content, {"type": "text", "text": text}]}
    return {**message, "content": f"{content}\n{text}" if content else text}
