"""POST /v1/messages and /v1/messages/count_tokens: the Messages protocol in its own words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noria.core.outputs import Delta, FinishReason
from support_anthropic import ASKED, HEADERS, block, message, prompt_of, refusal, turns
from support_events import event_of, named_events
from support_server import AsgiCall, FakeEngine, Server, app_for, says, serving


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


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "messages is empty"),
        ({"messages": "hi"}, "messages must be a list"),
        (block([IMAGE]), "messages[0].content[0] is a block of type 'image'"),
        (block([USE]), "'tool_use'"),
        (block([{"type": "tool_result"}]), "messages[0].content[0].tool_use_id must be a string"),
        (block([{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}]), "content[0].content[0]"),
        (
            {"messages": [{"role": "assistant", "content": [{**USE, "input": "{}"}]}]},
            "messages[0].content[0].input must be an object",
        ),
        (block([{"type": "text"}]), "messages[0].content[0].text"),
        (block(None), "messages[0].content"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"system": 5}, "system must be"),
        ({"system": [IMAGE]}, "system[0]"),
        ({"tools": [{**TOOL, "name": ""}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "two that are called 'f'"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "'bash_20250124'"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "'g', which is not in tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "`tools`"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "below max_tokens (20)"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}, "max_tokens": 30}, "at least 1024"),
        ({"thinking_token_budget": 5}, "--reasoning-parser"),
        ({"thinking": {"type": "deep"}}, "thinking.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
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
        {"thinking": {"type": "enabled"}},
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
