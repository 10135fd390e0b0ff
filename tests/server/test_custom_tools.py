"""Custom tools, whose input is a text: what is asked of the engine, and how their calls are told."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from noria.parsers.custom import InputText
from noria.server.protocol.messages import MESSAGES_SCHEMA
from support_events import named_events
from support_server import Server, chunks, tokenizer
from support_tools import writing

LARK = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"+'}
REGEX = {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}
FUNCTION = {"name": "now", "parameters": {"type": "object", "properties": {}}}
INPUT = "SELECT \"ü\", 'a\\b'\n FROM 🌧;"


def chat_tools(form: dict[str, Any] | None = None, has_function: bool = False) -> list[dict[str, Any]]:
    custom: dict[str, Any] = {"name": "run_sql", "description": "Runs it."}
    if form is not None:
        details = {key: form[key] for key in form if key != "type"}
        custom["format"] = {"type": form["type"], **({form["type"]: details} if details else {})}
    functions = [{"type": "function", "function": FUNCTION}] if has_function else []
    return [{"type": "custom", "custom": custom}, *functions]


def response_tools(form: dict[str, Any] | None = None, has_function: bool = False) -> list[dict[str, Any]]:
    tool = {"type": "custom", "name": "run_sql", **({} if form is None else {"format": form})}
    return [tool, *([{"type": "function", **FUNCTION}] if has_function else [])]


CHOSEN = {"type": "custom", "custom": {"name": "run_sql"}}
CUTS = (None, lambda ids: [ids], lambda ids: [ids[i : i + 3] for i in range(0, len(ids), 3)])


def calls_in_chunks(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for chunk in told:
        for delta in chunk["choices"][0]["delta"].get("tool_calls", []):
            if "id" in delta:
                assert delta.pop("index") == len(calls)
                calls.append(delta)
            elif "custom" in delta:
                calls[delta["index"]]["custom"]["input"] += delta["custom"]["input"]
            else:
                calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return [{key: value for key, value in call.items() if key != "id"} for call in calls]


def in_chat(server: Server, **fields: Any) -> tuple[list[dict[str, Any]], str]:
    """The calls, the same whole and streamed, and how the answer ended."""
    choice = server.chat(max_tokens=2000, **fields).json()["choices"][0]
    whole = [{key: call[key] for key in call if key != "id"} for call in choice["message"]["tool_calls"]]
    told = chunks(server.chat(max_tokens=2000, stream=True, **fields))
    assert calls_in_chunks(told) == whole
    assert told[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    return whole, choice["finish_reason"]


def custom(text: str) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": "run_sql", "input": text}}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("escapes", [False, True])
def test_a_call_that_a_model_is_free_to_make_is_told_with_its_input_as_it_is(cut: Any, escapes: bool) -> None:
    written = json.dumps({"input": INPUT}, ensure_ascii=escapes)
    text = f'<tool_call>\n{{"name": "run_sql", "arguments": {written}}}\n</tool_call>'
    other = '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    with writing(text + other, cut=cut) as server:
        calls, finish = in_chat(server, tools=chat_tools(has_function=True))
    function = {"type": "function", "function": {"name": "now", "arguments": "{}"}}
    assert (calls, finish) == ([custom(INPUT), function], "tool_calls")


@pytest.mark.parametrize("cut", CUTS)
def test_a_named_tool_s_answer_is_its_input_and_a_grammar_makes_it_so(cut: Any) -> None:
    with writing(INPUT, cut=cut) as server:
        for form, kind in ((None, None), ({"type": "text"}, None), (LARK, "lark"), (REGEX, "regex")):
            calls, finish = in_chat(server, tools=chat_tools(form), tool_choice=CHOSEN)
            assert (calls, finish) == ([custom(INPUT)], "stop")
            grammar = server.engine.submitted[-1].params.grammar
            assert (grammar and grammar.kind) == kind
            assert grammar is None or grammar.text == form["definition"]


@pytest.mark.parametrize("cut", CUTS)
def test_required_calls_are_those_of_functions_or_one_of_a_custom_tool(cut: Any) -> None:
    tools = chat_tools(LARK, has_function=True)
    with writing("call run_sql:\n" + INPUT, cut=cut) as server:
        calls, finish = in_chat(server, tools=tools, tool_choice="required")
        assert (calls, finish) == ([custom(INPUT)], "tool_calls")
        choices = json.loads(server.engine.submitted[-1].params.grammar.text)["format"]["elements"]
        assert [choice["type"] for choice in choices] == ["json_schema", "sequence"]
        assert choices[1]["elements"][1] == {"type": "grammar", "grammar": LARK["definition"]}
    with writing('[{"name": "now", "parameters": {}}]', cut=cut) as server:
        calls, _ = in_chat(server, tools=tools, tool_choice="required")
        assert [call["function"]["name"] for call in calls] == ["now"]


def test_the_model_is_told_of_it_as_of_a_function_and_held_to_an_expression() -> None:
    with writing("Hm.") as server:
        server.chat(tools=chat_tools(REGEX))
        request = server.engine.submitted[-1]
        prompt = tokenizer().decode(request.prompt_token_ids, skip_special_tokens=False)
        assert '"input": {"type": "string", "pattern": "^(?:[a-z]+)$"}' in prompt
        assert (request.params.grammar.kind, request.params.grammar.field) == ("structural_tag", "tools")
        server.chat(tools=chat_tools(LARK))
        request = server.engine.submitted[-1]
        assert request.params.grammar is None
        assert "Lark grammar" in tokenizer().decode(request.prompt_token_ids, skip_special_tokens=False)


@pytest.mark.parametrize("cut", CUTS)
def test_responses_tell_it_in_items_and_events_of_their_own(cut: Any) -> None:
    fields = {"model": "wheel", "input": "turn", "tools": response_tools(LARK)}
    fields["tool_choice"] = {"type": "custom", "name": "run_sql"}
    with writing(INPUT, cut=cut) as server:
        whole = server.post("/v1/responses", **fields).json()
        events = named_events(server.post("/v1/responses", stream=True, **fields))
    (item,) = whole["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "run_sql", INPUT)
    assert item["call_id"].startswith("call_") and item["id"].startswith("ctc_")
    assert whole["tools"][0] == {"type": "custom", "name": "run_sql", "description": None, "format": LARK}
    word = "response.custom_tool_call_input"
    assert "".join(one["delta"] for one in events if one["type"] == f"{word}.delta") == INPUT
    (done,) = [one for one in events if one["type"] == f"{word}.done"]
    assert done["input"] == INPUT
    assert events[-1]["response"]["output"][0]["input"] == INPUT
    assert not any("function_call" in one["type"] for one in events)


def test_earlier_calls_and_what_came_of_them_go_to_the_template() -> None:
    call = {"id": "call_1", **custom("SELECT 1")}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
    ]
    items = [
        {"role": "user", "content": "go"},
        {"type": "custom_tool_call", "call_id": "call_1", "name": "run_sql", "input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "one"},
    ]
    jsonschema_rs.validate(MESSAGES_SCHEMA, messages)
    with writing("Done.") as server:
        server.chat(messages=messages, tools=chat_tools())
        assert (
            server.post("/v1/responses", model="wheel", input=items, tools=response_tools()).status_code
            == 200
        )
        for request in server.engine.submitted:
            prompt = tokenizer().decode(request.prompt_token_ids, skip_special_tokens=False)
            assert '{"name": "run_sql", "arguments": {"input": "SELECT 1"}}' in prompt
            assert "<tool_response>\none\n</tool_response>" in prompt


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"type": "custom", "custom": {"name": "f"}}], "tool_calls[0].custom must be"),
        ([{"type": "custom"}], "custom"),
    ],
)
def test_earlier_calls_that_are_none_are_refused(messages: Any, words: str) -> None:
    with writing("Done.") as server:
        said = {"role": "assistant", "content": None, "tool_calls": messages}
        error = server.chat(messages=[{"role": "user", "content": "go"}, said]).json()["error"]
        assert (error["code"], error["param"]) == (400, "messages")
        assert words in error["message"]
        assert not jsonschema_rs.is_valid(MESSAGES_SCHEMA, [said])
        item = {"type": "custom_tool_call", "call_id": "c", "name": "f"}
        error = server.post("/v1/responses", model="wheel", input=[item]).json()["error"]
        assert error["message"] == "input[0].input must be a string"


@pytest.mark.parametrize(
    ("named", "stated", "words"),
    [
        ("now", "custom", "calls 'now' a tool of the type 'custom'; its type is function"),
        ("run_sql", "function", "calls 'run_sql' a tool of the type 'function'; its type is custom"),
    ],
)
def test_a_choice_that_takes_a_tool_for_one_of_the_other_kind_is_refused(
    named: str, stated: str, words: str
) -> None:
    nested = {"type": stated, stated: {"name": named}}
    flat = {"type": stated, "name": named}
    allowed = {"mode": "required"}
    with writing("Hm.") as server:
        for choice in (nested, {"type": "allowed_tools", "allowed_tools": {**allowed, "tools": [nested]}}):
            error = server.chat(tools=chat_tools(has_function=True), tool_choice=choice).json()["error"]
            assert (error["code"], error["param"], words in error["message"]) == (400, "tool_choice", True)
        for choice in (flat, {"type": "allowed_tools", **allowed, "tools": [flat]}):
            fields = {"tools": response_tools(has_function=True), "tool_choice": choice}
            answer = server.post("/v1/responses", model="wheel", input="turn", **fields)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"], words in error["message"]) == (
                400,
                "tool_choice",
                True,
            )


TEXTS = {
    r'{"input": "a\"b\\c\/d\n\u00fc\ud83c\udf27"}': 'a"b\\c/d\nü🌧',
    '{ "input" : "plain"}': "plain",
    r'{"input": "\ud83c lone \udf27"}': "\ufffd lone \ufffd",
    r'{"input": "\ud83c\n\q"}': "\ufffd\n\\q",
    '{"input": "cut': "cut",
    '{"input": ""}': "",
    '{"other": "x"}': '{"other": "x"}',
    '["x"]': '["x"]',
    "": "",
}


@pytest.mark.parametrize("written", TEXTS)
def test_an_input_is_read_out_of_its_arguments_however_they_are_cut(written: str) -> None:
    for first in range(len(written) + 1):
        for second in range(first, len(written) + 1):
            reader = InputText()
            pieces = (written[:first], written[first:second], written[second:])
            assert "".join(map(reader.feed, pieces)) + reader.finish() == TEXTS[written]
