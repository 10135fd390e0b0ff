"""How a deadline is stated, and how a client is told that it has passed."""

from __future__ import annotations

from typing import Any

import pytest

from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest
from support_server import FakeEngine, Script, Server, chunks, says, serving, sse_data, tokenizer

ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "turn"}]},
    "/v1/completions": {"prompt": "turn"},
    "/v1/responses": {"input": "turn"},
    "/v1/messages": {"messages": [{"role": "user", "content": "turn"}], "max_tokens": 9},
}


def cut_after(text: str) -> Script:
    """The engine ends the request for its deadline after some words."""

    def script(request: GenerateRequest) -> list[Delta]:
        ids = tuple(tokenizer().encode(text, add_special_tokens=False))
        said = [Delta(request.request_id, ids)] if ids else []
        return [*said, Delta(request.request_id, finish=FinishReason.TIMEOUT)]

    return script


def _timeout(server: Server, headers: dict[str, str] | None = None, **fields: Any) -> float | None:
    assert (
        server.client.post("/v1/completions", json={"prompt": "turn", **fields}, headers=headers).status_code
        == 200
    )
    return server.engine.submitted[-1].timeout_s


def test_without_any_time_stated_there_is_no_deadline(server: Server) -> None:
    assert _timeout(server) is None


@pytest.mark.parametrize("path", ROUTES)
def test_the_time_of_a_request_is_stated_by_header_or_field_and_the_shorter_counts(
    server: Server, path: str
) -> None:
    cases = [({"X-Request-Timeout": "400"}, {}, 400), ({}, {"request_timeout": 300.5}, 300.5)]
    cases += [({"X-Request-Timeout": "400"}, {"request_timeout": 500}, 400)]
    for headers, fields, seconds in cases:
        answer = server.client.post(path, json={"model": "wheel", **ROUTES[path], **fields}, headers=headers)
        assert answer.status_code == 200, answer.text
        # What has passed since the request came is taken off.
        assert seconds - 60 < server.engine.submitted[-1].timeout_s < seconds


def test_the_servers_own_time_holds_for_requests_that_state_none() -> None:
    with serving(FakeEngine(), request_timeout=600.0) as server:
        assert 540 < _timeout(server) < 600
        assert 1140 < _timeout(server, request_timeout=1200) < 1200


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf", ""])
def test_a_time_that_is_none_is_refused_by_its_name(server: Server, text: str) -> None:
    answer = server.client.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-Timeout": text})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-request-timeout")


@pytest.mark.parametrize("value", [0, -2.5])
def test_a_field_that_is_no_time_is_refused_by_its_name(server: Server, value: float) -> None:
    answer = server.complete(request_timeout=value)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "request_timeout")


def test_a_request_whose_time_is_over_before_it_is_read_never_reaches_the_engine(server: Server) -> None:
    answer = server.complete(request_timeout=1e-9)
    assert answer.status_code == 504
    assert server.engine.submitted == []


def test_a_request_that_expires_in_the_queue_is_told_so_and_not_to_try_again(server: Server) -> None:
    server.engine.script = cut_after("")
    answer = server.complete(request_timeout=60)
    assert answer.status_code == 504
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"] == {
        "message": "The 60 s for this request did not suffice; `X-Request-Timeout`, `request_timeout` and the "
        "server's own --request-timeout say how long one may take.",
        "type": "TimeoutError",
        "param": None,
        "code": 504,
    }


def test_a_reply_in_one_piece_that_is_cut_brings_what_was_said_and_the_reason(server: Server) -> None:
    server.engine.script = cut_after("the wheel")
    error = server.chat(request_timeout=60, n=2).json()["error"]
    assert (error["code"], error["partial"]) == (504, ["the wheel", "the wheel"])


def test_the_messages_protocol_tells_a_cut_reply_in_its_own_words(server: Server) -> None:
    server.engine.script = cut_after("the wheel")
    body = {"model": "wheel", **ROUTES["/v1/messages"], "request_timeout": 60}
    answer = server.client.post("/v1/messages", json=body)
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "timeout_error"
    assert answer.json()["error"]["partial"] == ["the wheel"]


def test_a_stream_that_is_cut_has_said_what_there_was_and_ends_with_the_reason(server: Server) -> None:
    server.engine.script = cut_after("the wheel")
    answer = server.complete(stream=True, request_timeout=60)
    *said, error, done = sse_data(answer)
    assert (answer.status_code, done) == (200, "[DONE]")
    assert "the wheel" in "".join(said)
    assert '"code":504' in error


def test_a_request_that_ends_in_time_is_whole(server: Server) -> None:
    server.engine.script = says("the wheel turns")
    last = chunks(server.complete(stream=True, request_timeout=60))[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
