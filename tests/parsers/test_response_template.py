from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils.chat_parsing import parse_response

from noria.config.errors import ConfigError
from noria.parsers.parts import CallArguments, CallBegin, Content, Part, Reasoning, joined, text_of
from noria.parsers.registry import answer_template
from noria.parsers.sink import CallSink
from noria.parsers.template_load import load_template
from noria.parsers.template_reader import TemplateReader
from support_response_templates import ANCHORS, ANSWERS, MALFORMED, TEMPLATES
from support_tool_texts import TOOLS, calls_of


def prompt(name: str, begun: str = "") -> str:
    return f"<think>what was before{ANCHORS.get(name, 'assistant')}{begun}"


def reader(
    name: str, begun: str = "", hidden: tuple[str, ...] = (), max_calls: int | None = None
) -> TemplateReader:
    sink = CallSink(TOOLS, lambda index, tool: f"{tool}#{index}", max_calls)
    return TemplateReader(load_template(TEMPLATES[name]), sink, prompt(name, begun), hidden)


def read(answers: TemplateReader, pieces: list[str]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for piece in pieces:
        parts += answers.feed(piece, (), is_last=False)
    return joined([*parts, *answers.feed("", (), is_last=True)])


def every_cut(text: str) -> list[list[str]]:
    return [[text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]


def reasoning_of(parts: tuple[Part, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Reasoning))


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_its_reasoning_its_words_and_its_calls_however_it_is_cut(answer: Any) -> None:
    name, begun, text, reasoning, content, calls = answer
    whole = read(reader(name, begun), [text])
    assert (reasoning_of(whole), text_of(whole), calls_of(whole)) == (reasoning, content, calls)
    for pieces in every_cut(text):
        assert read(reader(name, begun), pieces) == whole


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_whole_answers_are_what_transformers_makes_of_them(answer: Any) -> None:
    name, begun, text, reasoning, content, calls = answer
    tools = [
        {"type": "function", "function": {"name": tool, "parameters": schema}}
        for tool, schema in TOOLS.items()
    ]
    message = parse_response(text, deepcopy(TEMPLATES[name]), prefix=prompt(name, begun), tools=tools)
    told = [
        (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])
    ]
    thought = message.get("thinking", message.get("reasoning", ""))
    assert (thought, message.get("content", ""), told) == (reasoning, content, calls)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_truncated_answer_is_the_same_however_it_is_cut(answer: Any) -> None:
    name, begun, text, *_ = answer
    for end in range(1, len(text), 5):
        whole = read(reader(name, begun), [text[:end]])
        assert read(reader(name, begun), list(text[:end])) == whole
        assert read(reader(name, begun), [text[: end // 2], text[end // 2 : end]]) == whole


@pytest.mark.parametrize(("name", "text"), MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_call_is_text_to_the_last_character(name: str, text: str) -> None:
    for pieces in every_cut(text):
        assert read(reader(name), pieces) == (Content(text),)


_MARKUP = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|im_end|>",
    "<function=now>",
    "</function>",
]
_MARKUP += ['{"name": "now", "arguments": {}}', " ", "\n", "x", "<", "@now\n", "@end", "[now()]", "<|start|>"]
_MARKUP += [
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|call|>",
]
_MARKUP += [
    "<|channel|>commentary to=functions.now",
    "<|message|>",
    "{}",
    "<|tool_call>call:now",
    "<tool_call|>",
]


@given(st.sampled_from(sorted(TEMPLATES)), st.lists(st.sampled_from(_MARKUP), max_size=12), st.data())
def test_any_jumble_of_markup_is_the_same_however_it_is_cut(
    name: str, jumble: list[str], data: st.DataObject
) -> None:
    text = "".join(jumble)
    places = data.draw(st.sets(st.integers(0, len(text)), max_size=6))
    hidden = data.draw(st.sampled_from([(), ("<tool_call>", "<|start|>", "<|message|>")]))
    cuts = [0, *sorted(places), len(text)]
    whole = read(reader(name, hidden=hidden), [text])
    assert read(reader(name, hidden=hidden), [text[a:b] for a, b in pairwise(cuts)]) == whole
    assert read(reader(name, hidden=hidden), list(text)) == whole


def test_tokens_of_reasoning_are_counted_with_their_delimiters_however_they_come() -> None:
    text = "<think>Hm</think>Yes"
    starts = (0, 7, 8, 9, 17, 18)
    together = reader("json")
    together.feed(text, starts, is_last=True)
    apart = reader("json")
    for start, end in pairwise([*starts, len(text)]):
        apart.feed(text[start:end], (start,), is_last=end == len(text))
    assert together.num_reasoning_tokens == apart.num_reasoning_tokens == 4
    begun = reader("json", "<think>\n")
    begun.feed("Hm</think>Yes", (0, 2, 10), is_last=True)
    assert begun.num_reasoning_tokens == 2


def test_without_tools_what_looks_like_a_call_is_text_and_reasoning_may_be_dropped() -> None:
    template = load_template(TEMPLATES["json"])
    text = '<think>Hm</think>So\n<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    answers = TemplateReader(template, None, tells_reasoning=False)
    assert read(answers, list(text)) == (Content(text.removeprefix("<think>Hm</think>")),)


def test_special_tokens_are_never_told_and_later_calls_than_may_be_made_are_dropped() -> None:
    text = "Hm </tool_call>or <tool_call>nothing</tool_call>"
    assert read(reader("json", hidden=("<tool_call>", "</tool_call>")), [text]) == (Content("Hm or nothing"),)
    twice = '<tool_call>{"name": "now", "arguments": {}}</tool_call>' * 2
    parts = read(reader("json", max_calls=1), [twice])
    assert parts == (CallBegin(0, "now#0", "now"), CallArguments(0, "{}"))


def test_a_prompt_without_the_anchor_begins_nothing() -> None:
    answers = TemplateReader(load_template(TEMPLATES["json"]), None, "<think>other")
    assert read(answers, ["Yes"]) == (Content("Yes"),)


def test_a_text_that_could_become_a_delimiter_for_ever_is_told_and_read_no_further() -> None:
    answers = TemplateReader(
        load_template(
            {
                "start_anchor": "a",
                "fields": {"thinking": {"open_pattern": "<a.*?z>", "close": "</a>"}, "content": {}},
            }
        ),
        None,
    )
    text = "<a" + "x" * 20_000 + "<az>Hm</a>"
    assert text_of(read(answers, [text])) == text


def changed(path: str, value: Any) -> dict[str, Any]:
    raw = deepcopy(TEMPLATES["json"])
    *parents, last = path.split(".")
    place = raw
    for key in parents:
        place = place[key]
    place[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("version", 2, "version must be 1, got 2"),
        ("other", 1, "without other; known are"),
        ("defaults", [], "defaults must be an object"),
        ("defaults.content", "Hello", "defaults.content must be empty"),
        ("fields", {}, "fields must be an object with at least one field"),
        ("fields.title", {}, "fields.title must be one of content"),
        ("fields.content", 3, "fields.content must be an object, got int"),
        ("fields.content.when", 3, "fields.content must be without when"),
        ("fields.content.content", "json", "fields.content must be read as text"),
        ("fields.content.join", ", ", "fields.content.join must be a text, beside a repeats of true"),
        ("fields.thinking.open", "", "fields.thinking.open must be a text or a list"),
        ("fields.thinking.open", [], "fields.thinking.open must be a text or a list"),
        ("fields.thinking.open_pattern", "<", "fields.thinking.open must be without open_pattern"),
        ("fields.content.close_pattern", "<", "fields.content.close must be without close_pattern"),
        ("fields.thinking", {}, r"fields must be with one at most .* got \['thinking', 'content'\]"),
        (
            "fields.thinking",
            {"open_pattern": "("},
            r"fields.thinking.open_pattern must be a regular expression",
        ),
        ("fields.thinking", {"open_pattern": "(?P<a>x)"}, "fields.thinking.transform must be there"),
        ("fields.tool_calls.content", "yaml", "fields.tool_calls.content must be one of text, .*got 'yaml'"),
        (
            "fields.tool_calls.content_args",
            {"lax": True},
            "fields.tool_calls.content_args must be without lax",
        ),
        ("fields.tool_calls.transform", "a {content}", "fields.tool_calls.transform must be of whole"),
        ("fields.tool_calls.transform", "{other}", "fields.tool_calls.transform must be about content"),
        ("fields.tool_calls.repeats", 1, "fields.tool_calls.repeats must be true or false"),
        ("start_anchor", None, "start_anchor must be a text"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_by_the_field_that_is_wrong(
    path: str, value: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_template(changed(path, value))


def test_patterns_without_the_library_for_them_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    assert load_template(TEMPLATES["json"]).has_patterns is False
    with pytest.raises(ConfigError, match=r"fields\.tool_calls\.open_pattern.*noria\[response-template\]"):
        load_template(TEMPLATES["tags"])


def test_auto_takes_the_checkpoint_at_its_word_unless_a_format_is_named() -> None:
    source = json.dumps(TEMPLATES["json"])
    named = "response_template"
    for names in (("auto", "auto"), (named, "auto"), ("auto", named), (named, named)):
        found = answer_template(*names, source)
        assert found is not None and found.reasoning_markers == ("<think>", "</think>")
    for names in (("hermes", "auto"), ("auto", "none"), ("none", "none")):
        assert answer_template(*names, source) is None
    assert answer_template("auto", "auto", None) is None
    assert answer_template("auto", "auto", source, "plugin.py") is None
    with pytest.raises(ConfigError, match=r"tool_call_parser is response_template, .* beside 'none'"):
        answer_template(named, "none", source)
    with pytest.raises(ConfigError, match=r"reasoning_parser is response_template, but .* has none"):
        answer_template("auto", named, None)
    with pytest.raises(ConfigError, match=r"reasoning_parser .* no field thinking"):
        answer_template("auto", named, json.dumps(TEMPLATES["python"]))
    with pytest.raises(ConfigError, match="cannot be used: it must be an object"):
        answer_template("auto", "auto", "[]")


def test_values_are_cast_by_the_first_of_their_types_that_fits() -> None:
    schemas: Mapping[str, Any] = {
        "a": {"type": ["integer", "string"]},
        "b": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "c": {"type": "number"},
        "d": {"type": "array"},
        "e": {"type": "string", "nullable": True},
        "f": {"type": "integer"},
    }
    values = {"a": "x", "b": "None", "c": "2.50", "d": "[1]", "e": "null", "f": "3.5", "g": "1"}
    told = {"a": "x", "b": None, "c": 2.5, "d": [1], "e": None, "f": "3.5", "g": "1"}
    sink = CallSink({"f": {"properties": schemas}}, lambda index, name: f"{name}#{index}")
    answers = TemplateReader(load_template(TEMPLATES["json"]), sink)
    call = json.dumps({"name": "f", "arguments": values})
    assert calls_of(read(answers, [f"<tool_call>{call}</tool_call>"])) == [("f", told)]
