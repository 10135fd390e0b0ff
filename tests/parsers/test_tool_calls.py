from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.parsers.formats import NAMES_OF_REASONING, NAMES_OF_TOOLS, TOOL_FORMATS
from noria.parsers.parts import CallArguments, CallBegin, Content, text_of
from noria.parsers.sink import CallSink
from noria.parsers.steps import MAX_HEAD
from noria.parsers.tool_calls import ToolCallReader
from support_tool_texts import BARE, CALLS, TOOLS, WRITERS, Case, calls_of, cases, read

CASES = cases()
MALFORMED = {
    "a name that is no tool's": ("hermes", '<tool_call>{"name": "rm", "arguments": {"x": 1}}</tool_call>!'),
    "a marker alone": ("hermes", "Write <tool_call> and then JSON."),
    "a marker at the end": ("hermes", "Write <tool_call>"),
    "a part of a marker at the end": ("hermes", "2 <tool_c"),
    "JSON that breaks off before its name": ("hermes", 'So: <tool_call>\n{"arguments": {"city": "P'),
    "no name": ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    "no JSON": ("hermes", "<tool_call>get_weather(Paris)</tool_call>"),
    "an object that is an answer": ("llama3_json", '{"name": "Ada", "parameters": {"born": 1815}}'),
    "an object of another kind": ("llama3_json", ' {"city": "Paris"} '),
    "a list": ("llama4_pythonic", "[1, 2, (3)]"),
    "a call that is none of ours": ("llama4_pythonic", "[print(1)]"),
    "a tag too few": ("qwen3_coder", "<tool_call>\n<function get_weather>\n</function>\n</tool_call>"),
    "an unknown tag": ("qwen3_coder", "<tool_call><function=rm></function></tool_call>"),
    "no bracket": ("mistral", "[TOOL_CALLS] none today"),
    "no name before the arguments": ("kimi_k2", "<|tool_call_begin|>{}"),
}


@pytest.mark.parametrize("hidden", [(), ("<tool_call>",)])
def test_a_text_that_never_ends_beginning_like_calls_is_read_in_a_time_that_grows_with_its_length(
    hidden: tuple[str, ...],
) -> None:
    number = 0
    hermes = TOOL_FORMATS["hermes"]

    def counted(cursor: Any, sink: Any) -> Any:
        nonlocal number
        steps = hermes.body(cursor, sink)
        next(steps)
        try:
            while True:
                character = yield
                number += 1
                steps.send(character)
        except StopIteration:
            return

    text = '<tool_call>{"a":[' * 3000
    told = []
    for pieces in ([text], [text[i : i + 5] for i in range(0, len(text), 5)]):
        number = 0
        reader = ToolCallReader(replace(hermes, body=counted), CallSink(TOOLS, lambda i, name: "id"), hidden)
        parts = [part for piece in pieces for part in reader.feed(piece)] + reader.finish()
        told.append(text_of(parts))
        assert number < 64 * 1024 + 2 * MAX_HEAD
    assert told[0] == told[1] == (text.replace("<tool_call>", "") if hidden else text)


def every_cut(text: str) -> list[list[str]]:
    return [[text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]


def test_every_format_has_its_cases() -> None:
    assert set(WRITERS) == set(TOOL_FORMATS)
    assert set(NAMES_OF_TOOLS.values()) == set(TOOL_FORMATS)
    assert len(CALLS) >= 10


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_well_formed_answer_is_its_calls_and_its_words_however_it_is_cut(case: Case) -> None:
    whole = read(case.format, [case.text])
    assert calls_of(whole) == case.calls
    assert text_of(whole) == case.content
    for pieces in every_cut(case.text):
        assert read(case.format, pieces) == whole


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_truncated_answer_is_the_same_however_it_is_cut_and_loses_no_word_before_it(case: Case) -> None:
    for end in range(1, len(case.text), 3):
        text = case.text[:end]
        whole = read(case.format, [text])
        assert read(case.format, list(text)) == whole
        assert read(case.format, [text[: end // 2], text[end // 2 :]]) == whole
        assert [part.name for part in whole if isinstance(part, CallBegin)] == [
            name for name, _ in case.calls
        ][: sum(isinstance(part, CallBegin) for part in whole)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_arguments_only_grow_and_are_always_the_beginning_of_the_final_ones(case: Case) -> None:
    final = read(case.format, [case.text])
    reader = ToolCallReader(TOOL_FORMATS[case.format], CallSink(TOOLS, lambda index, name: f"{name}#{index}"))
    told: dict[int, str] = {}
    for character in case.text:
        for part in reader.feed(character):
            if isinstance(part, CallArguments):
                told[part.index] = told.get(part.index, "") + part.text
        for index, text in told.items():
            whole = "".join(p.text for p in final if isinstance(p, CallArguments) and p.index == index)
            assert whole.startswith(text)


@given(st.data())
def test_any_cut_of_any_answer_gives_the_same_parts(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(list(CASES.values())))
    places = data.draw(st.sets(st.integers(1, len(case.text) - 1), max_size=12))
    cuts = [0, *sorted(places), len(case.text)]
    pieces = [case.text[start:end] for start, end in pairwise(cuts)]
    assert read(case.format, pieces) == read(case.format, [case.text])


_MARKUP = sorted(
    {marker for form in TOOL_FORMATS.values() for marker in form.markers}
    | {
        "{",
        "}",
        "[",
        "]",
        '"name"',
        ": ",
        '"arguments"',
        '"now"',
        "now",
        "(",
        ")",
        ",",
        "\n",
        "x",
        "<function=",
        ">",
    }
    | {"<parameter=", "</parameter>", "</function>", "\\", "'", "`", "<"}
)


@given(st.sampled_from(sorted(TOOL_FORMATS)), st.lists(st.sampled_from(_MARKUP), max_size=14), st.data())
def test_any_jumble_of_markup_is_the_same_however_it_is_cut(
    name: str, jumble: list[str], data: st.DataObject
) -> None:
    text = "".join(jumble)
    cut = data.draw(st.integers(0, len(text)))
    whole = read(name, [text])
    assert read(name, list(text)) == whole
    assert read(name, [text[:cut], text[cut:]]) == whole


@pytest.mark.parametrize(("name", "text"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_call_is_text_to_the_last_character(name: str, text: str) -> None:
    for pieces in every_cut(text):
        assert read(name, pieces) == (Content(text),)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_an_answer_without_calls_stays_as_it_is(name: str) -> None:
    text = '  It is < 3 °C, "cold"\n\n- and {windy} [very]\n'
    for pieces in every_cut(text):
        assert read(name, pieces) == (Content(text),)


def test_a_call_that_has_begun_keeps_what_the_model_wrote_into_it() -> None:
    parts = read("hermes", ['<tool_call>{"name": "get_weather", "arguments": {"city": tru'])
    assert parts == (CallBegin(0, "get_weather#0", "get_weather"), CallArguments(0, '{"city": tru'))


def test_what_follows_a_call_where_its_end_should_be_is_text_and_the_end_is_not() -> None:
    parts = read("hermes", ['<tool_call>{"name": "now", "arguments": {}}} oh</tool_call>'])
    assert parts == (CallBegin(0, "now#0", "now"), CallArguments(0, "{}"), Content("} oh"))


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"arguments": {"city": "P"}, "name": "get_weather"}', '{"city": "P"}'),
        ('{"name": "get_weather", "parameters": {"city": "P"}}', '{"city": "P"}'),
        ('{"name": "get_weather", "arguments": "{\\"city\\": \\"P\\"}"}', '{"city": "P"}'),
        (
            '{"type": "function", "function": {"name": "get_weather", "arguments": {"city":"P"}}}',
            '{"city":"P"}',
        ),
        ('{"id": [1, {"a": 2}], "name": "get_weather", "arguments": {"city": "P"}}', '{"city": "P"}'),
        ('{"name": "get_weather"}', "{}"),
        ('{"name": "get_weather", "arguments": null}', "{}"),
        ('{"name": "get_weather", "arguments": ""}', "{}"),
    ],
)
def test_json_calls_are_read_in_every_order_and_with_either_word(written: str, arguments: str) -> None:
    parts = read("hermes", [f"<tool_call>{written}</tool_call>"])
    assert parts == (CallBegin(0, "get_weather#0", "get_weather"), CallArguments(0, arguments))


def test_values_of_tags_are_what_the_schema_says_and_else_what_they_look_like() -> None:
    tags = {"city": "42", "days": "42", "filter": "{'a': True, 'b': None}", "else": "plain words"}
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in tags.items())
    parts = read("qwen3_coder", [f"<tool_call>\n<function=get_weather>\n{written}</function>\n</tool_call>"])
    told = {"city": "42", "days": 42, "filter": {"a": True, "b": None}, "else": "plain words"}
    assert calls_of(parts) == [("get_weather", told)]


def test_mistral_names_its_calls_before_the_arguments_too() -> None:
    for text in ('[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather{"days": 1}', "Yes. [TOOL_CALLS]now{}"):
        whole = read("mistral", [text])
        assert next(name for name, _ in calls_of(whole)) == "now"
        assert all(read("mistral", pieces) == whole for pieces in every_cut(text))


def test_only_as_many_calls_are_told_as_may_be_made() -> None:
    text = WRITERS["hermes"]([("now", {}), ("get_weather", {"days": 1}), ("now", {})]) + " Done."
    parts = read("hermes", [text], max_calls=1)
    assert parts == (CallBegin(0, "now#0", "now"), CallArguments(0, "{}"), Content("Done."))


def test_special_tokens_are_never_told_even_where_no_call_comes_of_them() -> None:
    markers = ("[TOOL_CALLS]",)
    reader = ToolCallReader(TOOL_FORMATS["mistral"], CallSink(TOOLS, lambda index, name: ""), markers)
    assert text_of([*reader.feed("Hm [TOOL_CALLS] nothing."), *reader.finish()]) == "Hm  nothing."


def test_no_marker_of_a_format_begins_like_another() -> None:
    for form in TOOL_FORMATS.values():
        for one in form.markers:
            assert [other for other in form.markers if other != one and other.startswith(one)] == []


def test_bare_formats_are_those_that_mark_nothing_before_a_call() -> None:
    assert set(BARE) == {"llama3_json", "llama4_pythonic", "xlam"}


def test_arguments_that_are_deep_or_endless_break_nothing() -> None:
    deep = '<tool_call>{"name": "now", "arguments": ' + '{"a": ' * 5000
    assert json.dumps(text_of(read("hermes", [deep]))) == '""'
    endless = "<tool_call>" * 300 + '{"arguments": "' + "x" * 40_000
    assert text_of(read("hermes", [endless])) == endless


def test_every_reasoning_name_is_known() -> None:
    assert {"qwen3", "deepseek_r1", "granite", "mistral"} <= set(NAMES_OF_REASONING)
