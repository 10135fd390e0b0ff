"""Reasoning over HTTP: told apart, counted, bounded, left out, and given back."""

from __future__ import annotations

from typing import Any

import pytest

from noria.sampling.grammar import Marker, Prologue
from support_server import Server, tokenizer
from support_tools import PROTOCOLS, THINKING_TEMPLATE, THOUGHT, USER, writing

BY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
THINKING = {"chat_template_kwargs": {"opens": True}}  # the template opens the reasoning


def tail_of(server: Server) -> str:
    prompt = tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)
    return prompt.rpartition("<|start|>assistant\n")[2]


@BY_PROTOCOL
@pytest.mark.parametrize("opens", [False, True])
def test_reasoning_and_answer_are_told_apart_whole_and_streamed(protocol: Any, opens: bool) -> None:
    text = THOUGHT.removeprefix("<think>\n") if opens else THOUGHT
    fields = THINKING if opens else {}
    for cut in (None, lambda ids: [ids], lambda ids: [ids[i : i + 5] for i in range(0, len(ids), 5)]):
        with writing(text, THINKING_TEMPLATE, cut) as server:
            whole, streamed = protocol.ask(server, **fields), protocol.stream(server, **fields)
        for said in (whole, streamed):
            assert (said.reasoning, said.text) == ("Let me see.", "The wheel turns.")
        assert whole.order == streamed.order


@BY_PROTOCOL
def test_an_answer_without_reasoning_is_whole(protocol: Any) -> None:
    with writing(" The wheel turns.\n", THINKING_TEMPLATE) as server:
        for said in (protocol.ask(server), protocol.stream(server)):
            assert (said.reasoning, said.text) == ("", " The wheel turns.\n")


def test_reasoning_goes_by_the_names_that_the_operator_chooses() -> None:
    names = {"reasoning": {"reasoning"}, "reasoning_content": {"reasoning_content"}}
    names["both"] = {"reasoning", "reasoning_content"}
    for setting, fields in names.items():
        with writing(THOUGHT, THINKING_TEMPLATE, reasoning_field_name=setting) as server:
            message = server.chat(max_tokens=200).json()["choices"][0]["message"]
            assert {name for name in message if message[name] == "Let me see."} == fields
            text = server.chat(max_tokens=200, stream=True).text
            assert ('"reasoning":' in text, '"reasoning_content":' in text) == (
                "reasoning" in fields,
                "reasoning_content" in fields,
            )


def test_reasoning_is_counted_among_the_output() -> None:
    num_reasoning = len(tokenizer().encode(THOUGHT.partition("</think>")[0] + "</think>"))
    for cut in (None, lambda ids: [ids], lambda ids: [ids[:9], ids[9:]]):
        with writing(THOUGHT, THINKING_TEMPLATE, cut) as server:
            usage = server.chat(max_tokens=200).json()["usage"]
            assert abs(usage["completion_tokens_details"]["reasoning_tokens"] - num_reasoning) <= 1
            assert usage["completion_tokens"] > num_reasoning
            answer = server.post("/v1/responses", model="wheel", input="turn").json()
            told = answer["usage"]["output_tokens_details"]["reasoning_tokens"]
            assert told == usage["completion_tokens_details"]["reasoning_tokens"]


def test_reasoning_may_be_left_out_and_is_counted_all_the_same() -> None:
    with writing(THOUGHT, THINKING_TEMPLATE) as server:
        answer = server.chat(max_tokens=200, include_reasoning=False).json()
        assert answer["choices"][0]["message"] == {
            "role": "assistant",
            "content": "The wheel turns.",
            "refusal": None,
        }
        assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 5
        streamed = server.chat(max_tokens=200, include_reasoning=False, stream=True).text
        assert "see" not in streamed


def test_a_model_that_does_not_reason_counts_none_and_its_text_is_left_alone() -> None:
    with writing(THOUGHT) as server:
        answer = server.chat(max_tokens=200).json()
        assert answer["choices"][0]["message"]["content"] == THOUGHT
        assert "completion_tokens_details" not in answer["usage"]


@pytest.mark.parametrize(
    ("path", "fields", "ends"),
    [
        ("/v1/chat/completions", {"messages": USER, "reasoning_effort": "none"}, True),
        ("/v1/chat/completions", {"messages": USER, "reasoning_effort": "high"}, False),
        ("/v1/responses", {"input": "a", "reasoning": {"effort": "none"}}, True),
        ("/v1/messages", {"messages": USER, "max_tokens": 9, "thinking": {"type": "disabled"}}, True),
        ("/v1/messages", {"messages": USER, "max_tokens": 9, "thinking": {"type": "enabled"}}, False),
        ("/v1/messages", {"messages": USER, "max_tokens": 9, "thinking": {"type": "adaptive"}}, False),
    ],
)
def test_a_request_says_in_its_protocols_words_whether_the_model_shall_reason(
    path: str, fields: dict[str, Any], ends: bool
) -> None:
    with writing("The wheel turns.", THINKING_TEMPLATE) as server:
        assert server.post(path, model="wheel", **fields).status_code == 200
        assert tail_of(server) == ("<think>\n\n</think>\n\n" if ends else "")


def test_what_the_variables_of_the_template_say_counts_before_the_effort() -> None:
    with writing("The wheel turns.", THINKING_TEMPLATE) as server:
        server.chat(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
        assert tail_of(server) == ""


BUDGETS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER, "thinking_token_budget": 1024},
    "/v1/responses": {"input": "a", "thinking_token_budget": 1024},
    "/v1/messages": {
        "messages": USER,
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
}


@pytest.mark.parametrize("path", BUDGETS)
def test_a_budget_reaches_the_engine_with_the_markers_of_the_model(path: str) -> None:
    begin, end = (tuple(tokenizer().encode(text)) for text in ("<think>", "</think>"))
    with writing("The wheel turns.", THINKING_TEMPLATE) as server:
        for opens in (False, True):
            fields = {**BUDGETS[path], "chat_template_kwargs": {"opens": opens}}
            assert server.post(path, model="wheel", **fields).status_code == 200
            params = server.engine.submitted[-1].params
            assert params.thinking_token_budget == 1024
            assert params.reasoning_begin_ids == (() if opens else begin)
            assert params.reasoning_end_ids == end
        ended = {**BUDGETS[path], "chat_template_kwargs": {"enable_thinking": False}}
        assert server.post(path, model="wheel", **ended).status_code == 200
        assert server.engine.submitted[-1].params.thinking_token_budget is None
    with writing("The wheel turns.") as server:
        answer = server.post(path, model="wheel", **BUDGETS[path])
        assert answer.status_code == 400
        assert "--reasoning-parser" in answer.json()["error"]["message"]


def test_reasoning_comes_back_in_every_protocol_and_is_shown_to_the_model() -> None:
    past: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {
            "messages": [*USER, {"role": "assistant", "content": "b", "reasoning": "hm"}, *USER]
        },
        "/v1/responses": {
            "input": [
                *USER,
                {
                    "type": "reasoning",
                    "id": "r",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "hm"}],
                },
                {"role": "assistant", "content": "b"},
                *USER,
            ]
        },
        "/v1/messages": {
            "max_tokens": 9,
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "noria"},
                        {"type": "redacted_thinking", "data": "x"},
                        {"type": "text", "text": "b"},
                    ],
                },
                *USER,
            ],
        },
    }
    with writing("The wheel turns.", THINKING_TEMPLATE) as server:
        for path, fields in past.items():
            answer = server.post(path, model="wheel", **fields)
            assert answer.status_code == 200, answer.text
            prompt = tokenizer().decode(server.engine.submitted[-1].prompt_token_ids)
            assert "assistant\n<think>hm</think>b" in prompt


def test_sealed_reasoning_can_be_sent_back_in_place_of_its_text() -> None:
    with writing(THOUGHT, THINKING_TEMPLATE) as server:
        asked = {"model": "wheel", "input": "turn", "include": ["reasoning.encrypted_content"]}
        item, message = server.post("/v1/responses", **asked).json()["output"]
        assert "see" not in item["encrypted_content"]
        plain, _ = server.post("/v1/responses", model="wheel", input="turn").json()["output"]
        assert plain["encrypted_content"] is None
        for sealed, shown in ((item["encrypted_content"], True), ("?", False), ("////", False)):
            kept = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": sealed}
            answer = server.post("/v1/responses", model="wheel", input=[*USER, kept, message, *USER])
            assert answer.status_code == 200, answer.text
            prompt = tokenizer().decode(server.engine.submitted[-1].prompt_token_ids)
            assert ("<think>Let me see.</think>The wheel turns." in prompt) is shown


def test_calls_that_must_be_made_end_the_reasoning_that_the_template_began() -> None:
    tools = PROTOCOLS["chat"].tools
    with writing('[{"name": "now", "parameters": {}}]', THINKING_TEMPLATE) as server:
        said = PROTOCOLS["chat"].ask(server, tools=tools, tool_choice="required", **THINKING)
        assert said.parsed == [("now", {})]
        assert tail_of(server) == "<think>\n</think>\n\n"


@BY_PROTOCOL
@pytest.mark.parametrize("opens", [False, True])
def test_an_answer_is_held_to_its_form_from_where_its_reasoning_ends(protocol: Any, opens: bool) -> None:
    text = 'Let me see.</think>{"a": 1}' if opens else '<think>Let me see.</think>{"a": 1}'
    with writing(text, THINKING_TEMPLATE) as server:
        for said in (protocol.ask, protocol.stream):
            told = said(server, structured_outputs={"json_object": True}, **(THINKING if opens else {}))
            assert (told.reasoning, told.text) == ("Let me see.", '{"a": 1}')
            prologue = server.engine.submitted[-1].params.grammar.prologue
            assert prologue == Prologue(None if opens else Marker("<think>"), Marker("</think>"))


def test_an_answer_without_reasoning_is_held_to_its_form_from_its_start() -> None:
    with writing('{"a": 1}', THINKING_TEMPLATE) as server:
        ended = {"chat_template_kwargs": {"enable_thinking": False}}
        server.chat(structured_outputs={"json_object": True}, **ended)
        assert server.engine.submitted[-1].params.grammar.prologue is None
        server.chat(response_format={"type": "json_object"}, max_tokens=9)
        assert server.engine.submitted[-1].params.grammar.prologue is not None


def test_calls_behind_reasoning_are_calls_and_calls_within_it_are_not() -> None:
    inside = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    with writing(f"<think>{inside}</think>So. {inside}", THINKING_TEMPLATE) as server:
        for protocol in PROTOCOLS.values():
            for ask in (protocol.ask, protocol.stream):
                said = ask(server, tools=protocol.tools)
                assert (said.reasoning, said.text, said.parsed) == (inside, "So.", [("now", {})])
