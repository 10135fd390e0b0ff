"""POST /v1/responses: what is asked reaches the model, what is told back is true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from noria.core.outputs import Delta, FinishReason
from support_events import event_of, named_events
from support_server import AsgiCall, FakeEngine, Server, app_for, says, served_model, serving, tokenizer

ASKED = {"model": "wheel", "input": "turn"}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


def respond(server: Server, **changes: Any) -> httpx.Response:
    return server.client.post("/v1/responses", json={**ASKED, **changes})


def prompt_of(server: Server) -> str:
    return tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


def turns(*messages: tuple[str, str]) -> str:
    return "".join(f"<|start|>{role}\n{text}<|end|>\n" for role, text in messages) + "<|start|>assistant\n"


def test_a_response_holds_one_message_and_its_usage(server: Server) -> None:
    body = respond(server).json()
    assert (body["object"], body["status"], body["model"]) == ("response", "completed", "wheel")
    [item] = body["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [
        {"type": "output_text", "text": "the wheel turns", "annotations": [], "logprobs": []}
    ]
    num_prompt = len(server.engine.submitted[-1].prompt_token_ids)
    usage = body["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (num_prompt, 5)
    assert usage["total_tokens"] == num_prompt + 5
    assert body["created_at"] <= body["completed_at"]


def test_the_id_bears_the_clients_own(server: Server) -> None:
    answer = server.client.post("/v1/responses", json=ASKED, headers={"X-Request-Id": "mine"})
    assert answer.json()["id"] == "resp_mine"


@pytest.mark.parametrize(
    ("asked", "prompt"),
    [
        ({"input": "a"}, turns(("user", "a"))),
        ({"input": "a", "instructions": "b"}, turns(("system", "b"), ("user", "a"))),
        (
            {
                "input": [
                    {"role": "developer", "content": "be"},
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
                    {
                        "type": "message",
                        "id": "msg_1",
                        "status": "completed",
                        "role": "assistant",
                        "phase": "final_answer",
                        "content": [{"type": "output_text", "text": "y", "annotations": []}],
                    },
                    {"role": "user", "content": "z"},
                ]
            },
            turns(("system", "be"), ("user", "x"), ("assistant", "y"), ("user", "z")),
        ),
    ],
)
def test_the_input_is_rendered_as_a_chat(server: Server, asked: dict[str, Any], prompt: str) -> None:
    assert respond(server, **asked).status_code == 200
    assert prompt_of(server) == prompt


def test_the_events_of_a_stream_come_in_order_and_are_numbered(server: Server) -> None:
    events = named_events(respond(server, stream=True))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * deltas,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    text = "".join(event["delta"] for event in events if event["type"].endswith("output_text.delta"))
    assert text == events[-4]["text"] == events[-3]["part"]["text"] == "the wheel turns"


def test_a_stream_ends_with_the_response_that_a_whole_one_is(server: Server) -> None:
    def same(response: dict[str, Any]) -> dict[str, Any]:
        item = {**response["output"][0], "id": ""}
        return {**response, "id": "", "created_at": 0, "completed_at": 0, "output": [item]}

    for fields in ({}, {"max_output_tokens": 2}, LOGPROBS):
        whole = respond(server, **fields).json()
        last = named_events(respond(server, stream=True, **fields))[-1]
        assert same(last["response"]) == same(whole)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_cut_is_incomplete(server: Server, stream: bool) -> None:
    answer = respond(server, max_output_tokens=2, stream=stream)
    if stream:
        last = named_events(answer)[-1]
        assert last["type"] == "response.incomplete"
        body = last["response"]
    else:
        body = answer.json()
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert body["output"][0]["status"] == "incomplete"
    assert body["completed_at"] is None


def test_an_answer_without_words_is_an_empty_message(server: Server) -> None:
    server.engine.script = says("")
    assert respond(server).json()["output"][0]["content"][0]["text"] == ""
    kinds = [event["type"] for event in named_events(respond(server, stream=True))]
    assert "response.output_text.delta" not in kinds
    assert kinds.count("response.output_item.done") == 1


def test_log_probabilities_are_those_of_each_token(server: Server) -> None:
    [part] = respond(server, **LOGPROBS).json()["output"][0]["content"]
    assert [entry["token"] for entry in part["logprobs"]][:3] == ["t", "he", " wheel"]
    assert len(part["logprobs"]) == 5
    assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])
    events = named_events(respond(server, stream=True, **LOGPROBS))
    streamed = [entry for event in events if event["type"].endswith("delta") for entry in event["logprobs"]]
    assert streamed == part["logprobs"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"max_output_tokens": 7}, {"max_tokens": 7}),
        ({"temperature": 0.5, "top_p": 0.25}, {"temperature": 0.5, "top_p": 0.25}),
        ({"top_k": 3, "seed": 5, "stop": ["x"]}, {"top_k": 3, "seed": 5, "stop": ("x",)}),
        (LOGPROBS, {"logprobs": 2}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": 0}),
    ],
)
def test_a_sampling_field_reaches_the_engine(
    server: Server, asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert respond(server, **asked).status_code == 200
    params = server.engine.submitted[-1].params
    assert {name: getattr(params, name) for name in expected} == expected


def test_salt_and_priority_reach_the_engine(server: Server) -> None:
    respond(server, cache_salt="tenant 1", priority=2)
    request = server.engine.submitted[-1]
    assert (request.cache_salt, request.priority) == ("tenant 1", 2)


TOLD_BACK: dict[str, Any] = {
    "instructions": "be brief",
    "max_output_tokens": 9,
    "metadata": {"a": "b"},
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "temperature": 0.5,
    "text": {"format": {"type": "text"}},
    "tool_choice": "none",
    "tools": [{"type": "function", "name": "f", "description": None, "parameters": {}, "strict": None}],
    "top_p": 0.5,
    "truncation": "auto",
    "user": "u",
}


def test_a_response_tells_the_settings_it_was_made_with(server: Server) -> None:
    body = respond(server, **TOLD_BACK).json()
    assert {name: body[name] for name in TOLD_BACK} == TOLD_BACK


def conversation(num_turns: int) -> list[dict[str, str]]:
    said = [{"role": "system", "content": "be brief"}]
    for number in range(num_turns):
        said += [
            {"role": "user", "content": f"turn {number}"},
            {"role": "assistant", "content": f"wheel {number}"},
        ]
    return [*said, {"role": "user", "content": "the last"}]


def prompt_text(server: Server) -> str:
    return tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


@pytest.fixture
def roomy() -> Iterator[Server]:
    with serving(FakeEngine(), model=served_model(max_model_len=300)) as server:
        yield server


def test_a_conversation_that_does_not_fit_loses_as_few_of_its_oldest_turns_as_will_do(roomy: Server) -> None:
    fitting = [
        number
        for number in range(12)
        if respond(roomy, input=conversation(number), max_output_tokens=4).status_code == 200
    ]
    most = max(fitting)
    assert fitting == list(range(most + 1))
    assert 3 < most < 11
    assert respond(roomy, input=conversation(11), truncation="disabled").status_code == 400
    answer = respond(roomy, input=conversation(11), truncation="auto", max_output_tokens=4)
    assert answer.status_code == 200
    kept = prompt_text(roomy)
    assert "be brief" in kept
    assert "the last" in kept
    # (A number of two digits takes more tokens than one of one does.)
    turns = [number for number in range(11) if f"turn {number}<" in kept]
    assert turns == list(range(11 - len(turns), 11))
    assert most - 1 <= len(turns) <= most


def test_a_conversation_that_fits_is_left_alone_and_a_last_turn_that_does_not_is_refused(
    roomy: Server,
) -> None:
    respond(roomy, input=conversation(1), truncation="auto", max_output_tokens=4)
    assert "turn 0" in prompt_text(roomy)
    long = [*conversation(1), {"role": "user", "content": "wheel " * 400}]
    answer = respond(roomy, input=long, truncation="auto")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_nothing_is_stored_and_the_response_says_so(server: Server) -> None:
    answer = respond(server, store=True)
    assert answer.json()["store"] is False
    later = respond(server, previous_response_id=answer.json()["id"])
    assert later.status_code == 404
    assert later.json()["error"]["param"] == "previous_response_id"
    assert "keeps none" in later.json()["error"]["message"]


TOOL = {"type": "function", "name": "f", "parameters": {}}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ({"input": []}, "input", "empty"),
        ({"input": 5}, "input", "a string or a list"),
        ({"input": ["x"]}, "input", "input[0] must be an object"),
        ({"input": [{**CALL, "arguments": {}}]}, "input", "input[0].arguments must be a string"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input", "input[0].output"),
        ({"input": [{"type": "function_call_output", "output": "1"}]}, "input", "input[0].call_id"),
        ({"input": [{"type": "computer_call"}]}, "input", "'computer_call'"),
        ({"input": [{"type": "reasoning"}]}, "input", "nothing but reasoning"),
        ({"input": [IMAGE]}, "input", "'input_image'"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input", "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input", "content[0].text"),
        ({"input": [{"role": "user"}]}, "input", "input[0].content"),
        ({"tools": [{**TOOL, "type": "mcp"}]}, "tools", "'mcp'"),
        ({"tools": [{**TOOL, "name": None}]}, "tools", "tools[0].name"),
        ({"tools": [{**TOOL, "parameters": []}]}, "tools", "tools[0].parameters"),
        ({"tools": [TOOL], "tool_choice": "must"}, "tool_choice", "required"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice", "'g'"),
        ({"tool_choice": "required"}, "tool_choice", "tools"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format", "text.format"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format", "text.format"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary", "reasoning.summary"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort", "string"),
        ({"background": True}, "background", "background"),
        ({"conversation": "conv_1"}, "conversation", "conversation"),
        ({"prompt": {"id": "p"}}, "prompt", "prompt"),
        ({"include": ["wine"]}, "include", "'wine'"),
        ({"top_logprobs": 2}, "top_logprobs", "include"),
        ({"include": LOGPROBS["include"], "top_logprobs": 6}, "top_logprobs", "top_logprobs"),
        ({"truncation": "left"}, "truncation", "auto"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options", "stream"),
        ({"metadata": {"a": 1}}, "metadata", "strings"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata", "16"),
        ({"max_output_tokens": -1}, "max_output_tokens", "max_output_tokens"),
        ({"max_output_tokens": 65}, "input", "context_length_exceeded"),
        ({"max_tokens": 5}, "max_tokens", "max_tokens"),
        ({"n": 2}, "n", "`n`"),
        ({"cache_salt": ""}, "cache_salt", "cache_salt"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    server: Server, asked: dict[str, Any], param: str, words: str
) -> None:
    answer = respond(server, **asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "asked",
    [
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [{"type": "web_search", "external_web_access": False}]},
        {"tools": [], "tool_choice": "auto"},
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"include": ["reasoning.encrypted_content"]},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}},
        {"background": False, "service_tier": "auto", "max_tool_calls": 3, "unheard_of": 1},
        {"stream": True, "stream_options": {"include_obfuscation": False}},
    ],
)
def test_what_asks_for_nothing_that_is_lacking_is_accepted(server: Server, asked: dict[str, Any]) -> None:
    assert respond(server, **asked).status_code == 200


def test_null_means_not_stated(server: Server) -> None:
    respond(server)
    plain = server.engine.submitted[-1].params
    names = ("instructions", "max_output_tokens", "include", "text", "reasoning", "tools", "tool_choice")
    others = ("previous_response_id", "truncation", "metadata", "stream", "stream_options", "store", "top_p")
    assert respond(server, **dict.fromkeys(names + others)).status_code == 200
    assert server.engine.submitted[-1].params == plain


@pytest.mark.parametrize(
    ("finish", "code", "words"),
    [
        (FinishReason.ERROR, "invalid_prompt", "bad logits"),
        (FinishReason.LOST, "server_error", "The engine failed"),
    ],
)
def test_a_failure_inside_a_stream_is_a_failed_response(
    server: Server, finish: FinishReason, code: str, words: str
) -> None:
    server.engine.script = lambda r: [
        Delta(r.request_id, tuple(tokenizer().encode("the wheel", add_special_tokens=False))),
        Delta(r.request_id, finish=finish, error="bad logits"),
    ]
    events = named_events(respond(server, stream=True))
    last = events[-1]
    assert last["type"] == "response.failed"
    assert last["sequence_number"] == len(events) - 1
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == code
    assert words in last["response"]["error"]["message"]
    assert last["response"]["output"][0]["content"][0]["text"].startswith("the")


def test_a_failure_of_a_whole_response_is_an_error_reply(server: Server) -> None:
    server.engine.script = lambda r: [Delta(r.request_id, finish=FinishReason.LOST, error="dead")]
    answer = respond(server)
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "ServiceUnavailableError"


@pytest.mark.parametrize("enabled", [False, True])
def test_cached_tokens_are_told_only_where_the_server_allows_it(enabled: bool) -> None:
    script = lambda r: [Delta(r.request_id, (5,), finish=FinishReason.STOP, num_cached_tokens=2)]  # noqa: E731
    with serving(FakeEngine(script), enable_prompt_tokens_details=enabled) as server:
        details = respond(server).json()["usage"]["input_tokens_details"]
        assert details["cached_tokens"] == (2 if enabled else 0)


def test_what_is_there_goes_out_before_the_answer_is_whole() -> None:
    async def scenario() -> None:
        engine = FakeEngine(is_auto=False)
        call = AsgiCall(app_for(engine), "/v1/responses", {**ASKED, "stream": True})
        await call.until(lambda: len(call.messages) > 1)
        first = [event_of(frame) for frame in call.bodies[0].decode().split("\n\n")[:-1]]
        assert [event["type"] for event in first] == ["response.created", "response.in_progress"]
        engine.step()
        await call.until(lambda: len(call.messages) > 2)
        assert b'"delta":"t"' in call.bodies[1]
        call.leave()
        await call.finished()
        assert len(engine.cancelled) == 1

    asyncio.run(scenario())
