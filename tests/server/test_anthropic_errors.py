"""What goes wrong on /v1/messages is told in that protocol's shape, wherever on the way it arises."""

from __future__ import annotations

import pytest

from noria.config.errors import OverloadError, Refusal
from noria.core.outputs import Delta, FinishReason
from noria.server.limits import Limits
from support_anthropic import ASKED, block, message, refusal
from support_events import named_events
from support_server import FakeEngine, Server, serving, tokenizer


def test_too_long_a_prompt_is_told_in_the_words_clients_look_for(server: Server) -> None:
    status, kind, text = refusal(message(server, **block("turn " * 100)))
    num_tokens = int(text.split()[4])
    assert (status, kind) == (400, "invalid_request_error")
    assert text == f"prompt is too long: {num_tokens} tokens > 64 maximum"
    assert num_tokens > 100


def test_too_much_to_say_is_told_with_the_numbers(server: Server) -> None:
    message(server)
    num_prompt = len(server.engine.submitted[-1].prompt_token_ids)
    _, _, text = refusal(message(server, max_tokens=60))
    assert f"exceed context limit: {num_prompt} + 60 > 64" in text


def test_a_model_that_is_not_served_is_not_found(server: Server) -> None:
    status, kind, text = refusal(message(server, model="gpt"))
    assert (status, kind) == (404, "not_found_error")
    assert text == "The model `gpt` does not exist. This server has `wheel`, `wheel-alias`."


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"{", {"content-type": "application/json"}),
        (b"[]", {"content-type": "application/json"}),
        (b"{}", {"content-type": "text/plain"}),
        (b'{"a":' + b"[" * 100_000, {"content-type": "application/json"}),
    ],
)
def test_a_malformed_body_is_refused_in_the_protocols_shape(
    server: Server, body: bytes, headers: dict[str, str]
) -> None:
    answer = server.client.post("/v1/messages", content=body, headers=headers)
    assert refusal(answer)[:2] == (400, "invalid_request_error")


@pytest.mark.parametrize("kind", [[], {}, 5, None, True, "made up"])
@pytest.mark.parametrize("field", ["tool_choice", "thinking"])
def test_a_type_may_be_any_json_and_is_told_with_those_known(
    server: Server, field: str, kind: object
) -> None:
    status, name, text = refusal(message(server, **{field: {"type": kind}}))
    assert (status, name) == (400, "invalid_request_error")
    assert f"{field}.type must be one of " in text


def test_an_unknown_path_and_a_wrong_method_are_refused_in_the_protocols_shape(server: Server) -> None:
    assert refusal(server.get("/v1/messages/batches"))[:2] == (404, "not_found_error")
    answer = server.get("/v1/messages")
    assert refusal(answer)[:2] == (405, "invalid_request_error")
    assert answer.headers["allow"] == "POST"


def test_too_large_a_body_is_refused_in_the_protocols_shape() -> None:
    with serving(FakeEngine(), Limits(max_body_bytes=200)) as server:
        assert refusal(message(server, **block("x" * 300)))[:2] == (413, "request_too_large")


KEY = "the-key"


@pytest.mark.parametrize("headers", [{"x-api-key": KEY}, {"Authorization": f"Bearer {KEY}"}])
def test_either_way_to_state_a_key_is_taken(headers: dict[str, str]) -> None:
    with serving(FakeEngine(), api_key=(KEY,)) as server:
        assert server.client.post("/v1/messages", json=ASKED, headers=headers).status_code == 200


def test_a_missing_or_wrong_key_is_refused_in_the_protocols_shape() -> None:
    with serving(FakeEngine(), api_key=(KEY,)) as server:
        for headers in ({}, {"x-api-key": "other"}, {"x-api-key": ""}, {"Authorization": KEY}):
            answer = server.client.post("/v1/messages", json=ASKED, headers=headers)
            assert refusal(answer)[:2] == (401, "authentication_error")


def test_other_routes_take_no_key_in_this_protocols_header() -> None:
    with serving(FakeEngine(), api_key=(KEY,)) as server:
        assert server.client.get("/v1/models", headers={"x-api-key": KEY}).status_code == 401


def test_a_draining_server_is_overloaded_in_this_protocol(server: Server) -> None:
    with serving(FakeEngine()) as other:
        other.app.state.switchboard.gate.drain()
        answer = message(other)
        assert refusal(answer)[:2] == (503, "overloaded_error")
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("finish", "kind", "words"),
    [
        (FinishReason.ERROR, "invalid_request_error", "bad logits"),
        (FinishReason.LOST, "overloaded_error", "The engine failed"),
    ],
)
def test_a_failure_inside_a_stream_is_an_error_event(
    server: Server, finish: FinishReason, kind: str, words: str
) -> None:
    server.engine.script = lambda r: [
        Delta(r.request_id, tuple(tokenizer().encode("the wheel", add_special_tokens=False))),
        Delta(r.request_id, finish=finish, error="bad logits"),
    ]
    *before, last = named_events(message(server, stream=True))
    assert [event["type"] for event in before][-1] == "content_block_delta"
    assert (last["type"], last["error"]["type"]) == ("error", kind)
    assert words in last["error"]["message"]


def test_a_key_that_asks_too_much_is_told_when_to_come_again(server: Server) -> None:
    server.engine.submit_error = OverloadError("too many at once", Refusal.KEY_REQUESTS, 3)
    try:
        answer = message(server)
    finally:
        server.engine.submit_error = None
    assert refusal(answer)[:2] == (429, "rate_limit_error")
    assert answer.headers["retry-after"] == "3"


@pytest.mark.parametrize("path", ["/llm/v1/messages", "/v1/messages"])
def test_behind_a_proxys_path_the_protocol_keeps_its_shapes(path: str) -> None:
    with serving(FakeEngine(), api_key=(KEY,), root_path="/llm") as server:
        assert refusal(server.client.post(path, json=ASKED))[:2] == (401, "authentication_error")
        answer = server.client.post(path, json=ASKED, headers={"x-api-key": KEY})
        assert answer.json()["type"] == "message"
        assert answer.headers["request-id"] == answer.headers["x-request-id"]


def test_a_failure_of_a_whole_message_is_an_error_reply(server: Server) -> None:
    server.engine.script = lambda r: [Delta(r.request_id, finish=FinishReason.LOST, error="dead")]
    assert refusal(message(server))[:2] == (503, "overloaded_error")
