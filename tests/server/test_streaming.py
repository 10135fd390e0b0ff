"""Streams and whole answers agree, however tokens arrive and texts are cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest
from support_server import AsgiCall, FakeEngine, Server, app_for, chunks, says, serving, sse_data, tokenizer

HOSTILE = "naïve 🦭 façade 🇫🇷 水車は回る 👩‍👩‍👧 wheels turn"
BOTH = pytest.mark.parametrize("endpoint", ["chat", "complete"])


def ask(server: Server, endpoint: str, **fields: Any) -> Any:
    return getattr(server, endpoint)(**fields)


def text_of(choice: dict[str, Any]) -> str:
    if "message" in choice:
        return choice["message"]["content"]
    return choice["delta"].get("content", "") if "delta" in choice else choice["text"]


def streamed_texts(received: list[dict[str, Any]]) -> list[str]:
    return [text_of(chunk["choices"][0]) for chunk in received if chunk["choices"]]


@BOTH
@pytest.mark.parametrize(
    ("options", "num_usages"),
    [(None, 0), ({}, 0), ({"include_usage": False}, 0), ({"include_usage": True}, 1)],
)
def test_usage_comes_once_and_only_when_asked_for(
    server: Server, endpoint: str, options: dict[str, bool] | None, num_usages: int
) -> None:
    received = chunks(ask(server, endpoint, stream=True, n=2, stream_options=options))
    with_usage = [chunk for chunk in received if "usage" in chunk]
    assert len(with_usage) == num_usages
    if num_usages:
        assert received[-1] is with_usage[0]
        assert received[-1]["choices"] == []
        assert received[-1]["usage"] == ask(server, endpoint, n=2).json()["usage"]


@BOTH
def test_continuous_usage_is_on_every_chunk_and_only_grows(server: Server, endpoint: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    received = chunks(ask(server, endpoint, stream=True, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in received]
    assert counts == sorted(counts)
    assert counts[-1] == ask(server, endpoint).json()["usage"]["completion_tokens"]
    alone = {"continuous_usage_stats": True}
    assert not [c for c in chunks(ask(server, endpoint, stream=True, stream_options=alone)) if "usage" in c]


@BOTH
def test_stream_options_without_a_stream_are_refused(server: Server, endpoint: str) -> None:
    answer = ask(server, endpoint, stream_options={"include_usage": True})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stream_options"


@pytest.mark.parametrize("enabled", [False, True])
def test_cached_tokens_are_told_only_where_the_server_allows_it(enabled: bool) -> None:
    def script(request: GenerateRequest) -> list[Delta]:
        return [Delta(request.request_id, (5,), finish=FinishReason.LENGTH, num_cached_tokens=2)]

    with serving(FakeEngine(script), enable_prompt_tokens_details=enabled) as server:
        expected = {"cached_tokens": 2} if enabled else None
        assert server.complete(n=3).json()["usage"].get("prompt_tokens_details") == expected
        last = chunks(server.chat(stream=True, stream_options={"include_usage": True}))[-1]
        assert last["usage"].get("prompt_tokens_details") == expected


@st.composite
def stops_and_cuts(draw: st.DrawFn) -> tuple[str, bool, list[int]]:
    """A stop string, whether it stays, and how many tokens share each delta."""
    start = draw(st.integers(0, len(HOSTILE) - 1))
    end = draw(st.integers(start + 1, min(len(HOSTILE), start + 12)))
    tail = draw(st.sampled_from(["", "zz"]))  # with a tail its head occurs and it never completes
    sizes = draw(st.lists(st.integers(1, 3), min_size=40, max_size=40))
    return HOSTILE[start:end] + tail, draw(st.booleans()), sizes


@BOTH
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=stops_and_cuts())
def test_any_stop_string_cut_anywhere_gives_one_text(
    server: Server, endpoint: str, case: tuple[str, bool, list[int]]
) -> None:
    stop, includes, sizes = case
    server.engine.script = says(HOSTILE, cut=lambda ids: list(cut(ids, sizes)))
    fields = {"stop": [stop], "include_stop_str_in_output": includes, "max_tokens": 40}
    whole = ask(server, endpoint, **fields).json()["choices"][0]
    received = chunks(ask(server, endpoint, stream=True, **fields))
    assert "".join(streamed_texts(received)) == text_of(whole)
    last = received[-1]["choices"][0]
    for name in ("finish_reason", "stop_reason"):
        assert last[name] == whole[name]
    full = tokenizer().decode(tokenizer().encode(HOSTILE, add_special_tokens=False)[:40])
    found = full.find(stop)
    if found >= 0:
        assert text_of(whole) == full[: found + (len(stop) if includes else 0)]
        assert (whole["finish_reason"], whole["stop_reason"]) == ("stop", stop)
    else:
        assert text_of(whole) == full
        assert whole["stop_reason"] is None


def cut(ids: list[int], sizes: list[int]) -> Iterator[list[int]]:
    for size in sizes:
        if ids:
            yield ids[:size]
        ids = ids[size:]


@BOTH
@pytest.mark.parametrize("max_tokens", range(1, 44, 3))
def test_characters_in_several_tokens_never_break(server: Server, endpoint: str, max_tokens: int) -> None:
    server.engine.script = says(HOSTILE)
    ids = tokenizer().encode(HOSTILE, add_special_tokens=False)[:max_tokens]
    once = tokenizer().decode(ids)
    assert text_of(ask(server, endpoint, max_tokens=max_tokens).json()["choices"][0]) == once
    texts = streamed_texts(chunks(ask(server, endpoint, max_tokens=max_tokens, stream=True)))
    assert "".join(texts) == once
    assert sum(text.count("\ufffd") for text in texts) == once.count("\ufffd")


def test_a_stop_token_id_is_the_stop_reason(server: Server) -> None:
    wheel = tokenizer().encode("the wheel turns", add_special_tokens=False)[2]

    def script(request: GenerateRequest) -> list[Delta]:
        return [
            Delta(request.request_id, (5,)),
            Delta(request.request_id, (wheel,), finish=FinishReason.STOP, stop_token_id=wheel),
        ]

    server.engine.script = script
    choice = server.chat(stop_token_ids=[wheel]).json()["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", wheel)


def test_a_stop_string_ends_the_sequence_in_the_engine_at_once() -> None:
    engine = FakeEngine(says("one two three four ", ends=False), is_auto=False)
    with (
        serving(engine) as server,
        server.client.stream(
            "POST", "/v1/completions", json={"prompt": "a", "stop": "two", "max_tokens": 50, "stream": True}
        ) as answer,
    ):
        (request,) = engine.submitted
        while "two" not in tokenizer().decode([i for delta in engine.sent for i in delta.token_ids]):
            engine.step()
        engine.wait_for(lambda: engine.cancelled)
        assert engine.cancelled == [request.request_id]
        assert engine.cancel_reasons == [FinishReason.STOP]
        lines = [line for line in answer.iter_lines() if line]
        engine.step()  # the abort
    assert lines[-1] == "data: [DONE]"
    text = "".join(json.loads(line.removeprefix("data: "))["choices"][0]["text"] for line in lines[:-1])
    assert text == "one "


def test_what_has_piled_up_goes_out_in_one_write() -> None:
    engine = FakeEngine(says("a b c d e f"), is_auto=False)
    app = app_for(engine)

    async def scenario() -> list[bytes]:
        call = AsgiCall(app, "/v1/completions", {"prompt": "x", "stream": True})
        await call.until(lambda: call.bodies)
        for _ in range(3):
            engine.step()
        await call.until(lambda: len(call.bodies) > 1)
        while engine.is_busy:
            engine.step()
        await call.finished()
        return call.bodies

    opening, first, second, closing = asyncio.run(scenario())
    assert opening == b""
    assert first.count(b'"text":"') == 3
    assert second.count(b'"text":"') >= 4
    assert closing == b"data: [DONE]\n\n"


FAILURES = [
    (FinishReason.ERROR, "the logits are not numbers", 400, "BadRequestError", "the logits are not numbers"),
    (FinishReason.ERROR, None, 400, "BadRequestError", "This request could not be computed."),
    (
        FinishReason.LOST,
        "/secret/path.py exploded",
        503,
        "ServiceUnavailableError",
        "The engine failed while it worked on this request.",
    ),
]


@BOTH
@pytest.mark.parametrize(("finish", "told", "code", "kind", "message"), FAILURES)
def test_a_failure_is_told_as_the_status_and_after_the_start_in_the_stream(
    server: Server, endpoint: str, finish: FinishReason, told: str | None, code: int, kind: str, message: str
) -> None:
    def script(request: GenerateRequest) -> list[Delta]:
        return [Delta(request.request_id, (5,)), Delta(request.request_id, finish=finish, error=told)]

    server.engine.script = script
    *before, error, done = sse_data(ask(server, endpoint, stream=True))
    assert done == "[DONE]"
    assert json.loads(error) == {"error": {"message": message, "type": kind, "param": None, "code": code}}
    assert "".join(streamed_texts([json.loads(item) for item in before])) == tokenizer().token_text(5)
    whole = ask(server, endpoint)
    assert (whole.status_code, whole.json()) == (code, json.loads(error))
    assert ("retry-after" in whole.headers) == (code == 503)


@BOTH
def test_an_abort_by_the_engine_is_a_503(server: Server, endpoint: str) -> None:
    server.engine.script = lambda request: [Delta(request.request_id, finish=FinishReason.ABORT)]
    answer = ask(server, endpoint)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


@BOTH
@pytest.mark.parametrize(("finish", "status"), [(FinishReason.ERROR, 400), (FinishReason.FAULT, 500)])
def test_whose_fault_a_failure_was_is_told_and_nothing_of_the_insides(
    server: Server, endpoint: str, finish: FinishReason, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.engine.script = lambda request: [Delta(request.request_id, finish=finish, error="5 of 9 are NaN")]
    answer = ask(server, endpoint)
    assert answer.status_code == status
    assert ("NaN" in answer.text) == (status == 400)
    assert ("NaN" in caplog.text) == (status == 500)


def test_one_failing_choice_ends_its_siblings() -> None:
    def script(request: GenerateRequest) -> list[Delta]:
        if request.request_id.endswith("-1"):
            return [Delta(request.request_id, finish=FinishReason.ERROR, error="bad logits")]
        return says("again ", ends=False)(request)

    async def scenario(engine: FakeEngine) -> int:
        call = AsgiCall(app_for(engine), "/v1/completions", {"prompt": "x", "n": 2, "max_tokens": 60})
        await call.until(lambda: engine.submitted)
        engine.step()
        await call.finished()
        return call.status

    engine = FakeEngine(script, is_auto=False)
    assert asyncio.run(scenario(engine)) == 400
    assert [request_id[-2:] for request_id in engine.cancelled] == ["-0"]


def test_a_silent_stream_gets_comments() -> None:
    engine = FakeEngine(says("a b"), is_auto=False)
    with (
        serving(engine, sse_keep_alive_interval=0.05) as server,
        server.client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == ": keep-alive"
        assert next(lines) == ""
        assert next(lines) == ": keep-alive"
        while engine.is_busy:
            engine.step()
        rest = [line for line in lines if line.startswith("data:")]
        assert rest[-1] == "data: [DONE]"
