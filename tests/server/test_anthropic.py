"""POST /v1/messages and /v1/messages/count_tokens: the Messages protocol in its own words, errors included."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from noria.config.errors import OverloadError, Refusal
from noria.core.outputs import Delta, FinishReason
from noria.server.limits import Limits
from support_events import event_of, named_events
from support_server import AsgiCall, FakeEngine, Server, app_for, says, serving, tokenizer

ASKED = {"model": "wheel", "max_tokens": 20, "messages": [{"role": "user", "content": "turn"}]}
HEADERS = {"anthropic-version": "2023-06-01"}


def message(server: Server, path: str = "/v1/messages", **changes: Any) -> httpx.Response:
    return server.client.post(path, json={**ASKED, **changes}, headers=HEADERS)


def prompt_of(server: Server) -> str:
    return tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


def turns(*messages: tuple[str, str]) -> str:
    return "".join(f"<|start|>{role}\n{text}<|end|>\n" for role, text in messages) + "<|start|>assistant\n"


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, kind and message of a refusal in this protocol's shape."""
    body = answer.json()
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    return answer.status_code, body["error"]["type"], body["error"]["message"]


def test_a_message_holds_one_block_of_text_and_its_usage(server: Server) -> None:
    answer = message(server)
    num_prompt = len(server.engine.submitted[-1].prompt_token_ids)
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert answer.json() == {
        "id": f"msg_{answer.headers['request-id']}",
        "type": "message",
        "role": "assistant",
        "model": "wheel",
        "content": [{"type": "text", "text": "the wheel turns", "citations": None}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": {
            "input_tokens": num_prompt,
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": None,
            "output_tokens": 5,
            "output_tokens_details": None,
            "server_tool_use": None,
            "cache_creation": None,
            "inference_geo": None,
            "service_tier": None,
        },
    }


def test_the_events_of_a_stream_come_in_order(server: Server) -> None:
    events = named_events(message(server, stream=True))
    kinds = [event["type"] for event in events]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        *("message_start", "content_block_start"),
        *["content_block_delta"] * deltas,
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    num_prompt = len(server.engine.submitted[-1].prompt_token_ids)
    opened = events[0]["message"]
    assert (opened["type"], opened["role"], opened["content"]) == ("message", "assistant", [])
    assert opened["stop_reason"] is None
    assert (opened["usage"]["input_tokens"], opened["usage"]["output_tokens"]) == (num_prompt, 0)
    assert events[1]["content_block"] == {"type": "text", "text": "", "citations": None}
    blocks = [event for event in events if event["type"].startswith("content_block")]
    assert {event["index"] for event in blocks} == {0}
    texts = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in texts} == {"text_delta"}
    assert "".join(delta["text"] for delta in texts) == "the wheel turns"
    assert (events[-2]["delta"]["stop_reason"], events[-2]["delta"]["stop_sequence"]) == ("end_turn", None)
    assert (events[-2]["usage"]["input_tokens"], events[-2]["usage"]["output_tokens"]) == (num_prompt, 5)


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({}, ("end_turn", None)),
        ({"max_tokens": 2}, ("max_tokens", None)),
        ({"stop_sequences": ["x", " turns"]}, ("stop_sequence", " turns")),
    ],
)
def test_why_it_ended_is_told_whole_and_streamed(
    server: Server, fields: dict[str, Any], ending: tuple[str, str | None]
) -> None:
    body = message(server, **fields).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ending
    last = named_events(message(server, stream=True, **fields))[-2]
    assert (last["delta"]["stop_reason"], last["delta"]["stop_sequence"]) == ending
    assert last["usage"].items() <= body["usage"].items()


def test_an_answer_without_words_has_no_block(server: Server) -> None:
    server.engine.script = says("")
    assert message(server).json()["content"] == []
    kinds = [event["type"] for event in named_events(message(server, stream=True))]
    assert kinds == ["message_start", "message_delta", "message_stop"]


BILLED = "x-anthropic-billing-header: cc_version=1; cch=abc;"


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ({"system": "be"}, turns(("system", "be"), ("user", "turn"))),
        (
            {"system": [{"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}}]},
            turns(("system", "be"), ("user", "turn")),
        ),
        (
            {"system": [{"type": "text", "text": BILLED}, {"type": "text", "text": "be"}]},
            turns(("system", "be"), ("user", "turn")),
        ),
        ({"system": f"{BILLED}\nbe"}, turns(("system", "be"), ("user", "turn"))),
        ({"system": BILLED}, turns(("user", "turn"))),
        (
            {"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "a"}]},
            turns(("system", "be"), ("user", "a")),
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}],
                    },
                    {"role": "assistant", "content": [{"type": "text", "text": "d"}]},
                    {"role": "user", "content": "e"},
                ]
            },
            turns(("user", "a\nb\nc"), ("assistant", "d"), ("user", "e")),
        ),
    ],
)
def test_the_messages_are_rendered_as_a_chat(server: Server, asked: dict[str, Any], prompt: str) -> None:
    assert message(server, max_tokens=1, **asked).status_code == 200
    assert prompt_of(server) == prompt


def test_a_last_message_by_the_assistant_is_the_beginning_of_the_answer(server: Server) -> None:
    asked = [*ASKED["messages"], {"role": "assistant", "content": "In the "}]
    body = message(server, messages=asked).json()
    assert prompt_of(server) == turns(("user", "turn")) + "In the "
    assert body["content"][0]["text"] == "the wheel turns"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"temperature": 0.5, "top_p": 0.25, "top_k": 3}, {"temperature": 0.5, "top_p": 0.25, "top_k": 3}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ("a", "b")}),
        ({"seed": 5}, {"seed": 5}),
    ],
)
def test_a_sampling_field_reaches_the_engine(
    server: Server, asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert message(server, **asked).status_code == 200
    params = server.engine.submitted[-1].params
    assert {name: getattr(params, name) for name in expected} == expected


def test_tokens_are_counted_as_the_prompt_has_them(server: Server) -> None:
    message(server, system="be")
    num_prompt = len(server.engine.submitted[-1].prompt_token_ids)
    counted = server.client.post(
        "/v1/messages/count_tokens?beta=true",
        json={"model": "wheel", "system": "be", "messages": ASKED["messages"]},
        headers={**HEADERS, "anthropic-beta": "token-counting-2024-11-01"},
    )
    assert counted.json() == {"input_tokens": num_prompt}
    assert len(server.engine.submitted) == 1


TOOL = {"name": "f", "input_schema": {"type": "object"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


def block(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "messages is empty"),
        ({"messages": "hi"}, "messages must be a list"),
        (block([IMAGE]), "messages[0].content[0] is a block of type 'image'"),
        (block([USE]), "'tool_use'"),
        (block([{"type": "tool_result", "tool_use_id": "t"}]), "'tool_result'"),
        (block([{"type": "text"}]), "messages[0].content[0].text"),
        (block(None), "messages[0].content"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"system": 5}, "system must be"),
        ({"system": [IMAGE]}, "system[0]"),
        ({"tools": [TOOL]}, "`tools`"),
        ({"tool_choice": {"type": "any"}}, "`tools`"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "`thinking`"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": -0.5}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": ["x"] * 65}, "stop_sequences must hold at most 64"),
        ({"cache_salt": ""}, "cache_salt"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    server: Server, asked: dict[str, Any], words: str
) -> None:
    status, kind, text = refusal(message(server, **asked))
    assert (status, kind) == (400, "invalid_request_error")
    assert words in text


@pytest.mark.parametrize(
    "asked",
    [
        {"tools": [TOOL], "tool_choice": {"type": "none"}},
        {"tools": [], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        {"metadata": {"user_id": "u"}, "service_tier": "auto", "context_management": {"edits": []}},
        {"container": None, "unheard_of": 1, "cache_control": {"type": "ephemeral"}},
        dict.fromkeys(("system", "stop_sequences", "stream", "temperature", "top_p", "top_k", "metadata")),
    ],
)
def test_what_asks_for_nothing_that_is_lacking_is_accepted(server: Server, asked: dict[str, Any]) -> None:
    assert message(server, **asked).status_code == 200


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
    assert (status, kind, text) == (404, "not_found_error", "The model `gpt` does not exist.")


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


def test_cached_tokens_are_parted_from_the_rest_only_where_the_server_allows_it() -> None:
    script = lambda r: [Delta(r.request_id, (5,), finish=FinishReason.STOP, num_cached_tokens=2)]  # noqa: E731
    with serving(FakeEngine(script)) as server:
        plain = message(server).json()["usage"]
    with serving(FakeEngine(script), enable_prompt_tokens_details=True) as server:
        parted = message(server).json()["usage"]
        streamed = named_events(message(server, stream=True))[-2]["usage"]
    assert plain["input_tokens"] == parted["input_tokens"] + 2
    assert parted["cache_read_input_tokens"] == 2
    assert plain["cache_read_input_tokens"] is None
    assert streamed.items() <= parted.items()


def test_a_silent_stream_is_kept_alive_by_pings() -> None:
    async def scenario() -> None:
        app = app_for(FakeEngine(is_auto=False), sse_keep_alive_interval=0.01)
        call = AsgiCall(app, "/v1/messages", {**ASKED, "stream": True})
        await call.until(lambda: len(call.messages) > 2)
        assert event_of(call.bodies[1].decode().removesuffix("\n\n")) == {"type": "ping"}
        call.leave()
        await call.finished()

    asyncio.run(scenario())
