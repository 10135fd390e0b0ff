"""A01: token usage in a stream went missing, rode on every chunk, or came unasked.

The kind: optional parts of a reply obey their own switch alone, and streamed replies agree with whole ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from support_http import Api

PROMPT = "The water wheel"


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("endpoint", ["chat", "text"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [(None, 0), ({}, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)],
)
def test_one_chunk_tells_usage_where_it_is_asked_for_and_none_elsewhere(
    smollm2: Api, endpoint: str, options: dict[str, Any] | None, expected: int, n: int
) -> None:
    fields = {"max_tokens": 6, "n": n}
    whole = smollm2.ask(endpoint, PROMPT, **fields)
    chunks = smollm2.stream(endpoint, PROMPT, stream_options=options, **fields)
    telling = [chunk for chunk in chunks if chunk.get("usage") is not None]
    assert len(telling) == expected
    if expected:
        assert telling == chunks[-1:]
        assert telling[0]["choices"] == []
        assert telling[0]["usage"] == whole["usage"]
        assert sum(choice["finish_reason"] is not None for choice in chunks[-2]["choices"]) == 1


@pytest.mark.parametrize("endpoint", ["chat", "text"])
def test_each_optional_part_comes_by_its_own_switch_alone(smollm2: Api, endpoint: str) -> None:
    switches: dict[str, tuple[dict[str, Any], str]] = {
        "usage": ({"stream_options": {"include_usage": True}}, '"usage":'),
        "ids": ({"return_token_ids": True}, '"token_ids":'),
        "logprobs": ({"logprobs": 1} if endpoint == "text" else {"logprobs": True}, '"logprobs":{'),
    }
    for name, (fields, _) in switches.items():
        body = smollm2.post(
            {"chat": "/v1/chat/completions", "text": "/v1/completions"}[endpoint],
            model="test",
            stream=True,
            max_tokens=3,
            temperature=0,
            **(
                {"prompt": PROMPT}
                if endpoint == "text"
                else {"messages": [{"role": "user", "content": PROMPT}]}
            ),
            **fields,
        ).text
        assert {other for other, (_, mark) in switches.items() if mark in body} == {name}
