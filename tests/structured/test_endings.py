"""How an output ends that a grammar rules, beside everything else that ends one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from noria import LLM, RequestError, SamplingParams
from noria.sampling.grammar import Grammar

PROMPT = "hello world"


def output_of(llm: LLM, grammar: Grammar, **changes: Any) -> Any:
    params = SamplingParams(**{"temperature": 1.0, "max_tokens": 64, "seed": 1, **changes}, grammar=grammar)
    (result,) = llm.generate(PROMPT, params, show_progress=False)
    return result.outputs[0]


DIGITS = Grammar("regex", "[0-9]{4}")
OPEN = Grammar("regex", "[ab]*")


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (DIGITS, "[0-9]{4}"),
        (Grammar("choice", '["red", "grün", "😀"]'), "red|grün|😀"),
        (Grammar("lark", 'start: "x"+ "y"'), "x+y"),
        (Grammar("lark", 'root ::= digit{3} "y"\ndigit ::= [0-9]'), "[0-9]{3}y"),
        (Grammar("json_object"), r"(?s)\{.*"),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_what_the_grammar_says(
    llm: LLM, grammar: Grammar, pattern: str, temperature: float
) -> None:
    output = output_of(llm, grammar, temperature=temperature, max_tokens=200)
    assert output.finish_reason in (("stop", "length") if "*" in pattern or "+" in pattern else ("stop",))
    if output.finish_reason == "stop":
        assert re.fullmatch(pattern, output.text)


def test_one_of_thousands_of_choices_is_the_output(llm: LLM) -> None:
    choices = [f"{number}-{number * number}" for number in range(5000)]
    output = output_of(llm, Grammar("choice", json.dumps(choices)), temperature=1.0)
    assert output.finish_reason == "stop"
    assert output.text in choices


@pytest.mark.parametrize(
    "changes", [{}, {"ignore_eos": True}, {"min_tokens": 50}, {"ignore_eos": True, "min_tokens": 64}]
)
def test_an_output_ends_where_its_grammar_allows_nothing_more(llm: LLM, changes: dict[str, Any]) -> None:
    output = output_of(llm, DIGITS, **changes)
    assert (output.finish_reason, len(output.token_ids)) == ("stop", 5)
    assert re.fullmatch("[0-9]{4}", output.text)


@pytest.mark.parametrize("changes", [{"ignore_eos": True}, {"min_tokens": 64}])
def test_where_more_may_follow_an_ending_is_withheld(llm: LLM, changes: dict[str, Any]) -> None:
    output = output_of(llm, OPEN, logit_bias={llm.tokenizer.eos_token_ids[0]: 100.0}, **changes)
    assert (output.finish_reason, len(output.token_ids)) == ("length", 64)
    assert set(output.text) <= {"a", "b"}
    assert output_of(llm, OPEN, logit_bias={llm.tokenizer.eos_token_ids[0]: 100.0}).text == ""


def test_max_tokens_cut_an_output_short(llm: LLM) -> None:
    output = output_of(llm, Grammar("regex", "[0-9]{40}"), max_tokens=7)
    assert (output.finish_reason, len(output.text)) == ("length", 7)


def test_a_stop_string_ends_it_too(llm: LLM) -> None:
    output = output_of(llm, Grammar("regex", "[0-9]{3}x[0-9]{3}"), stop=("x",))
    assert (output.finish_reason, output.stop_reason) == ("stop", "x")
    assert re.fullmatch("[0-9]{3}", output.text)


def test_logprobs_are_the_models_own(llm: LLM) -> None:
    output = output_of(llm, DIGITS, logprobs=3)
    first, free = output.logprobs[0], output_of_free(llm)
    assert first.top == free.top
    assert first.token_id not in {token_id for token_id, _ in first.top} or first.rank <= 3


def output_of_free(llm: LLM) -> Any:
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=3)
    (result,) = llm.generate(PROMPT, params, show_progress=False)
    return result.outputs[0].logprobs[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"repetition_penalty": 1.5, "presence_penalty": 2.0, "frequency_penalty": -1.0},
        {"top_k": 3, "top_p": 0.5},
        {"min_p": 0.5},
        {"logit_bias": {5: 100.0, 9: -100.0}},
        {"bad_words": ("7",)},
        {"logits_processors": (lambda prompt, output, logits: -logits,)},
    ],
)
def test_everything_else_that_decides_keeps_to_it(llm: LLM, changes: dict[str, Any]) -> None:
    output = output_of(llm, DIGITS, **changes)
    assert output.finish_reason == "stop"
    assert re.fullmatch("[0-9]{4}", output.text)


def test_a_request_that_leaves_no_token_of_its_grammar_fails_alone(llm: LLM) -> None:
    output = output_of(llm, DIGITS, allowed_token_ids=llm.tokenizer.encode("abc", False))
    assert (output.finish_reason, output.error) == ("error", "no token is possible: all 267 logits are -inf")
    assert output_of(llm, DIGITS).finish_reason == "stop"


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (Grammar("regex", "(a"), "unclosed group"),
        (Grammar("regex", "(?=a)b"), "look-around"),
        (Grammar("regex", ""), "empty"),
        (Grammar("choice", "[]"), "at least one"),
        (Grammar("choice", '{"a": 1}'), "list"),
        (Grammar("lark", "start: foo"), "foo"),
        (Grammar("lark", "root ::= foo"), "the rule 'root' refers to 'foo', which is not defined"),
        (Grammar("lark", "start: start"), "allows no text"),
        (Grammar("json_schema", "false"), "object"),
        (Grammar("json_schema", "{"), "property name"),
        (Grammar("json_schema", '{"$ref": "#"}'), "allows no text"),
        (Grammar("json_schema", '{"$ref": "#/$defs/none"}'), "does not exist"),
        (Grammar("json_schema", '{"$ref": "http://127.0.0.1:9/a.json"}'), "not present"),
        (Grammar("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}'), "greater"),
        (Grammar("json_schema", '{"allOf": [{"type": "string"}, {"type": "null"}]}'), "incompatible"),
        (Grammar("json_schema", '{"type": "array", "uniqueItems": true}'), "uniqueItems"),
        (Grammar("json_schema", '{"a":' * 5000 + "{}" + "}" * 5000), "recursion"),
        (Grammar("json_schema", '{"type": "object", "required": ["' + "a" * (1 << 20) + '"]}'), "characters"),
        (Grammar("lark", "start: " + "(" * 30000 + '"a"' + ")" * 30000), "nested"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_anything_is_computed(
    llm: LLM, grammar: Grammar, words: str
) -> None:
    named = Grammar(grammar.kind, grammar.text, "response_format")
    with pytest.raises(RequestError, match=f"(?s)response_format cannot be followed.*{words}") as caught:
        output_of(llm, named)
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(("kind", "text"), [("yaml", ""), ("regex", 5), ("regex", "\ud800")])
def test_what_is_no_grammar_at_all_is_refused_by_name(kind: str, text: Any) -> None:
    with pytest.raises(RequestError, match="response_format") as caught:
        Grammar(kind, text, "response_format")
    assert caught.value.param == "response_format"


def test_json_text_follows_a_schema_whose_names_need_escapes(llm: LLM) -> None:
    schema = {
        "type": "object",
        "properties": {'"\\\n😀': {"const": 1}},
        "required": ['"\\\n😀'],
        "additionalProperties": False,
    }
    assert json.loads(output_of(llm, Grammar("json_schema", json.dumps(schema))).text) == {'"\\\n😀': 1}


@pytest.mark.parametrize(
    ("structure", "told"),
    [
        ({"begin": "<a>", "end": "</a>"}, "the structure that begins with '<a>' needs an object `schema`"),
        (
            {"begin": "(a)", "schema": {}, "end": ""},
            "no trigger begins the structure that begins with '(a)'",
        ),
    ],
)
def test_a_structure_that_cannot_be_followed_is_told_by_its_beginning(
    llm: LLM, structure: dict[str, Any], told: str
) -> None:
    asked = Grammar("structural_tag", json.dumps({"structures": [structure], "triggers": ["<"]}))
    with pytest.raises(RequestError, match=re.escape(told)):
        output_of(llm, asked)


def test_free_text_begins_as_it_may_and_only_noria_itself_says_how(llm: LLM) -> None:
    text = json.dumps({"format": {"type": "any_text"}})
    for first in "xy":  # the same tree, each with a beginning of its own
        asked = Grammar("structural_tag", text, begins_not=f"[^{first}]")
        assert output_of(llm, asked, min_tokens=4).text[0] == first
    stated = Grammar("structural_tag", json.dumps({"format": {"type": "any_text", "begins_not": "[^x]"}}))
    with pytest.raises(RequestError, match=r"format\.begins_not cannot be followed here"):
        output_of(llm, stated)
    with pytest.raises(RequestError, match="has no free text"):
        Grammar("regex", "[a-z]", begins_not="[^x]")
