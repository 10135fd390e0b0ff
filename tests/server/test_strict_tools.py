"""What `strict` on a tool asks of the engine, in three protocols, where a model is free to call."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Any

import pytest

from noria.chats.strict import with_strict_calls
from noria.chats.tools import chat_tools
from noria.parsers.formats import TOOL_FORMATS
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from support_server import Server
from support_tools import CALLS, CHAT_TOOLS, PROTOCOLS, THINKING_TEMPLATE, TWO_CALLS, writing

BY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


def with_strict(tools: list[dict[str, Any]], strict: Any, place: int = 0) -> list[dict[str, Any]]:
    """The tools, one of which is strict."""
    made = json.loads(json.dumps(tools))
    (made[place].get("function") or made[place])["strict"] = strict
    return made


def grammar_of(server: Server) -> Any:
    return server.engine.submitted[-1].params.grammar


def schemas_of(grammar: Any) -> dict[str, Any]:
    """By name, of the arguments: what stands between a name and a schema is not looked at."""
    found: dict[str, Any] = {}

    def look(node: Any) -> None:
        if isinstance(node, dict):
            parts = node.get("elements") or []
            if len(parts) == 3 and parts[-1].get("type") == "json_schema":
                found[parts[0]["value"]] = parts[-1]["json_schema"]
            for value in node.values():
                look(value)
        elif isinstance(node, list):
            for value in node:
                look(value)

    look(json.loads(grammar.text))
    return found


@BY_PROTOCOL
def test_a_strict_tool_puts_calls_under_a_grammar_and_they_are_read_as_ever(protocol: Any) -> None:
    with writing(TWO_CALLS) as server:
        for ask in (protocol.ask, protocol.stream):
            said = ask(server, tools=with_strict(protocol.tools, True))
            assert (said.text, said.parsed, said.finish) == ("I look.", CALLS, protocol.finishes[1])
            grammar = grammar_of(server)
            assert (grammar.kind, grammar.field, grammar.prologue) == ("structural_tag", "tools", None)
            schemas = schemas_of(grammar)
            assert schemas["get_weather"]["required"] == ["city"]
            assert schemas["get_weather"]["additionalProperties"] is False
            assert schemas["now"]["additionalProperties"] is True  # it is not strict


@BY_PROTOCOL
@pytest.mark.parametrize("strict", [False, None])
def test_without_a_strict_tool_nothing_is_held_to_anything(protocol: Any, strict: Any) -> None:
    with writing(TWO_CALLS) as server:
        protocol.ask(server, tools=with_strict(protocol.tools, strict))
        assert grammar_of(server) is None


def test_a_forced_call_is_under_the_grammar_that_it_always_is() -> None:
    with writing("{}") as server:
        server.chat(tools=with_strict(CHAT_TOOLS, True), tool_choice="required")
        assert grammar_of(server).kind == "json_schema"
        server.chat(tools=with_strict(CHAT_TOOLS, True), tool_choice="none")
        assert grammar_of(server) is None


def test_strict_is_true_or_false() -> None:
    with writing("Hm.") as server:
        error = server.chat(tools=with_strict(CHAT_TOOLS, "yes")).json()["error"]
    assert (error["code"], error["param"]) == (400, "tools")
    assert error["message"] == "tools[0].function.strict must be true or false"


@pytest.mark.parametrize("parser", ["qwen3_coder", "none"])
def test_a_format_that_no_grammar_writes_is_left_to_the_model_and_the_log_says_so(
    parser: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = "strict tools are not enforced: nothing here can hold calls in this format to a schema"
    with writing("Hm.", tool_call_parser=parser) as server, caplog.at_level("INFO", "noria.server"):
        assert server.chat(tools=CHAT_TOOLS).status_code == 200
        assert told not in caplog.messages
        assert server.chat(tools=with_strict(CHAT_TOOLS, True)).status_code == 200
        assert grammar_of(server) is None
    assert caplog.messages.count(told) == 1


@pytest.mark.parametrize(("parser", "is_bare"), [("llama3_json", True), ("hermes", False)])
def test_where_calls_need_no_marker_no_text_begins_as_they_do(parser: str, is_bare: bool) -> None:
    with writing("Hm.", tool_call_parser=parser) as server:
        server.chat(tools=with_strict(CHAT_TOOLS, True))
        grammar = grammar_of(server)
    assert bool(re.match(grammar.begins_not or "(?!)", '{"name": "now"')) == is_bare


def test_behind_reasoning_the_grammar_holds_from_its_end() -> None:
    with writing("Hm.</think>" + TWO_CALLS, THINKING_TEMPLATE) as server:
        for opens in (True, False):
            server.chat(tools=with_strict(CHAT_TOOLS, True), chat_template_kwargs={"opens": opens})
            prologue = grammar_of(server).prologue
            assert (prologue.begin is None, prologue.end.text) == (opens, "</think>")


FORMS = [
    (
        "json_schema",
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "null"}}}},
    ),
    ("json_schema", {"response_format": {"type": "json_object"}}),
    ("regex", {"structured_outputs": {"regex": "[0-9]"}}),
    ("or", {"structured_outputs": {"choice": ["a", "b"]}}),
    ("grammar", {"structured_outputs": {"grammar": 'start: "a"'}}),
    ("any_text", {"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}}),
    (
        "triggered_tags",
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}],
                "triggers": ["<f>"],
            }
        },
    ),
]


@pytest.mark.parametrize(("kind", "fields"), FORMS)
def test_beside_a_form_an_answer_is_calls_or_the_form(kind: str, fields: dict[str, Any]) -> None:
    with writing(TWO_CALLS.partition("\n")[2]) as server:
        answer = server.chat(tools=CHAT_TOOLS, max_tokens=500, **fields).json()["choices"][0]
        assert len(answer["message"]["tool_calls"]) == 2
        grammar = grammar_of(server)
        calls, form = json.loads(grammar.text)["format"]["elements"]
    assert grammar.field.startswith(next(iter(fields)))
    assert (calls["type"], form["type"]) == ("sequence", kind)


@pytest.mark.parametrize(
    ("parser", "fields"),
    [
        ("qwen3_coder", FORMS[0][1]),
        ("llama3_json", FORMS[0][1]),
        ("hermes", {"structured_outputs": {"json": "{"}}),
        ("hermes", {"structured_outputs": {"json": '{"a": "' + "x" * 2**20 + '"}'}}),
    ],
)
def test_what_cannot_stand_beside_calls_stands_alone(parser: str, fields: dict[str, Any]) -> None:
    with writing("null", tool_call_parser=parser) as server:
        server.chat(tools=CHAT_TOOLS, **fields)
        assert grammar_of(server).kind == "json_schema"


@pytest.mark.parametrize(
    "asked",
    [
        {"choice": []},
        {"choice": ["a", 5]},
        {"choice": '"a"'},
        {"structural_tag": {"structures": [{}], "triggers": ["<"]}},
        {"structural_tag": {"format": {"type": "any_text"}, "formats": 5}},
    ],
)
def test_a_form_that_is_at_fault_goes_to_its_own_reader_as_it_came(asked: dict[str, Any]) -> None:
    ((kind, value),) = asked.items()
    with writing("Hm.") as server:
        server.chat(tools=CHAT_TOOLS, structured_outputs=asked)
        grammar = grammar_of(server)
    assert (grammar.kind, grammar.field) == (kind, f"structured_outputs.{kind}")
    assert grammar.text == (value if isinstance(value, str) else json.dumps(value))


def nested(depth: int) -> str:
    return '{"not": ' * depth + "{}" + "}" * depth


def is_read(depth: int) -> bool:
    try:
        json.loads(nested(depth))
    except RecursionError:
        return False
    return True


def test_a_form_as_deep_as_can_be_read_is_followed_or_goes_to_its_own_reader() -> None:
    tools, form = chat_tools(CHAT_TOOLS, None, None), TOOL_FORMATS["hermes"]
    deepest = bisect_left(range(100_000), True, key=lambda depth: not is_read(depth))
    kinds = []
    for depth in (10, *range(deepest - 40, deepest + 2)):
        text = nested(depth)
        params = SamplingParams(grammar=Grammar("json_schema", text, "response_format"))
        grammar = with_strict_calls(params, tools, form).grammar
        assert grammar is not None and (grammar.kind == "structural_tag" or grammar.text == text)
        kinds.append(grammar.kind)
    assert (kinds[0], kinds[-1]) == ("structural_tag", "json_schema")
