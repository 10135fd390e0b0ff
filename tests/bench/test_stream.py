"""Answers are read as they came: when each chunk was whole, and how many tokens it brought."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noria.bench.stream import read_reply


def event(choice: dict[str, Any] | None = None, **fields: Any) -> bytes:
    content = {"choices": [] if choice is None else [choice], **fields}
    return f"data: {json.dumps(content)}\n\n".encode()


DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


def test_a_completion_has_an_instant_for_every_token() -> None:
    arrived = [
        (1.0, event({"text": "a", "finish_reason": None})),
        (2.0, event({"text": "b", "finish_reason": None}) + event({"text": "c", "finish_reason": "length"})),
        (3.0, event(usage=USAGE) + DONE),
    ]
    reply = read_reply(arrived)
    assert reply.chunk_s == (1.0, 2.0, 2.0)
    assert reply.chunk_tokens == (1, 1, 1)
    assert (reply.num_prompt, reply.num_output, reply.num_cached) == (7, 3, 4)
    assert (reply.text, reply.error, reply.is_complete) == ("abc", "", True)


def test_an_event_has_come_when_its_last_byte_has() -> None:
    whole = event({"text": "a", "finish_reason": None})
    reply = read_reply([(1.0, whole[:9]), (2.0, whole[9:-1]), (3.0, whole[-1:])])
    assert reply.chunk_s == (3.0,)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_comments_and_foreign_line_ends_do_not_matter(newline: bytes) -> None:
    raw = (b": ping\n\n" + event({"text": "a", "finish_reason": None}) + DONE).replace(b"\n", newline)
    assert read_reply([(1.0, raw)]).text == "a"


def test_a_chats_opening_and_its_end_are_no_tokens() -> None:
    arrived = [
        (1.0, event({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})),
        (2.0, event({"delta": {"content": "hi"}, "finish_reason": None})),
        (3.0, event({"delta": {}, "finish_reason": "stop"})),
    ]
    assert read_reply(arrived).chunk_s == (2.0,)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_counts_as_tokens(field: str) -> None:
    reply = read_reply([(1.0, event({"delta": {field: "hm"}, "finish_reason": None}))])
    assert reply.chunk_tokens == (1,)


def test_chunks_of_several_tokens_are_counted_exactly_with_continuous_usage() -> None:
    arrived = [
        (1.0, event({"text": "a", "finish_reason": None}, usage={"completion_tokens": 1})),
        (2.0, event({"text": "", "finish_reason": None}, usage={"completion_tokens": 1})),
        (3.0, event({"text": "bcd", "finish_reason": None}, usage={"completion_tokens": 5})),
    ]
    reply = read_reply(arrived)
    assert reply.chunk_s == (1.0, 3.0)
    assert reply.chunk_tokens == (1, 4)


def test_without_it_tokens_are_spread_by_the_length_of_texts() -> None:
    texts = ("a", "bbbbbb", "cc")
    arrived = [(float(n), event({"text": text, "finish_reason": None})) for n, text in enumerate(texts)]
    usage = event(usage={"prompt_tokens": 1, "completion_tokens": 9})
    reply = read_reply([*arrived, (9.0, usage)])
    assert sum(reply.chunk_tokens) == 9
    assert reply.chunk_tokens == (2, 4, 3) or max(reply.chunk_tokens) == reply.chunk_tokens[1]


def test_an_error_in_the_stream_is_told() -> None:
    reply = read_reply([(1.0, b'data: {"error": {"message": "out of luck"}}\n\n')])
    assert "out of luck" in reply.error
    assert "not JSON" in read_reply([(1.0, b"data: {oops\n\n")]).error
    assert not read_reply([]).is_complete
