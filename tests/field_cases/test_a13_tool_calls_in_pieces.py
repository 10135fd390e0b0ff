"""A13: streamed tool calls lose nothing, however many tokens arrive in one piece.

tests/parsers cuts the texts of every format at each position; here they go through the server.
"""

from __future__ import annotations

from typing import Any

import pytest

from support_tool_texts import CALLS as TEXTS
from support_tool_texts import TOOLS, WRITERS
from support_tools import PROTOCOLS, writing

TOOLS_OF = {
    "chat": [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in TOOLS.items()
    ],
    "responses": [{"type": "function", "name": name, "parameters": schema} for name, schema in TOOLS.items()],
    "messages": [{"name": name, "input_schema": schema} for name, schema in TOOLS.items()],
}
CUTS = {
    "a token each": lambda ids: [[i] for i in ids],
    "all at once": lambda ids: [ids],
    "in fives": lambda ids: [ids[i : i + 5] for i in range(0, len(ids), 5)],
    "halves": lambda ids: [ids[: len(ids) // 2], ids[len(ids) // 2 :]],
}


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "llama3_json", "mistral", "deepseek_v3", "lfm2"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_every_text_is_its_calls_in_every_protocol_and_every_piece(name: str, cut: Any) -> None:
    for title, calls in TEXTS.items():
        text = WRITERS[name](calls)
        with writing(text, cut=cut, tool_call_parser=name) as server:
            for word, protocol in PROTOCOLS.items():
                said = protocol.stream(server, tools=TOOLS_OF[word])
                assert said.parsed == calls, title
                assert (said.text, said.finish) == ("", protocol.finishes[1])
