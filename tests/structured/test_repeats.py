"""What would be followed copy by copy is refused at sight; text that only looks like it is followed."""

from __future__ import annotations

import gc
import json
import time
from typing import Any

import pytest
from llguidance import LLTokenizer

from noria.structured.faults import GrammarFault
from noria.structured.reading import compile_grammar, source_of
from noria.structured.repeats import MAX_REPEATS

OFTEN = "a{200000}"
TICKET = "ticket {200000}"  # text


def pattern(text: str) -> dict[str, Any]:
    return {"type": "string", "pattern": text}


def tag(begin: str, schema: dict[str, Any]) -> str:
    structure = {"begin": begin, "schema": schema, "end": TICKET}
    return json.dumps({"structures": [structure], "triggers": ["<"]})


SCHEMAS_OF_EXPRESSIONS = [
    pattern(OFTEN),
    {"type": "object", "properties": {"const": pattern(OFTEN), "enum": {"type": "null"}}},
    {"type": "object", "properties": {"pattern": pattern(OFTEN)}},
    {"type": "object", "patternProperties": {OFTEN: {}}},
    {"type": "object", "patternProperties": {"a": {"anyOf": [{"type": "null"}, pattern(OFTEN)]}}},
    {"type": "array", "items": pattern(OFTEN)},
    {"type": "array", "prefixItems": [{"type": "null"}, pattern(OFTEN)]},
    {"$ref": "#/$defs/default", "$defs": {"default": pattern(OFTEN)}},
    {"type": "object", "x-guidance": {"item_separator": f",{OFTEN}"}},
]
SCHEMAS_OF_TEXT = [
    {"const": TICKET},
    {"enum": [TICKET, {"pattern": OFTEN}]},
    {"const": {"pattern": OFTEN}},
    {"type": "string", "description": TICKET, "title": TICKET, "default": TICKET, "examples": [TICKET]},
    {"type": "object", "properties": {TICKET: {"type": "null"}}, "required": [TICKET]},
    {"type": "object", "properties": {"pattern": {"const": TICKET}}},
    {"type": "object", "additionalProperties": False, "default": {"pattern": OFTEN}},
]
REFUSED = [
    *(
        ("regex", text)
        for text in ("a{99999999}", "(a{2}b){1,99999999}", "a{5,}b{100001}", "a{" + "9" * 5000 + "}")
    ),
    *(("json_schema", json.dumps(schema)) for schema in SCHEMAS_OF_EXPRESSIONS),
    *(("structural_tag", tag("<a>", schema)) for schema in SCHEMAS_OF_EXPRESSIONS),
    *(("lark", f"start: %json {json.dumps(schema)} | /b/") for schema in SCHEMAS_OF_EXPRESSIONS),
    ("lark", f"start: /{OFTEN}/"),
    ("lark", f'start: "x" /"#{OFTEN}/ "y"'),
    ("lark", f"start: /x\\/\n{OFTEN}/"),
    ("lark", 'start: x{1,200000} // {1}\nx: "a"'),
    ("lark", f'start: %json {{"const": "}}"}} | /{OFTEN}/'),
    ("lark", f'# "\nstart: /{OFTEN}/ // "'),
]
FOLLOWED = [
    *(("regex", text) for text in ("a{1,3}", f"a{{{MAX_REPEATS}}}", "a{,}", "[{]12[}]")),
    ("choice", json.dumps([TICKET, "/" + TICKET + "/"])),
    *(("json_schema", json.dumps(schema)) for schema in SCHEMAS_OF_TEXT),
    *(("structural_tag", tag(f"<{TICKET}", schema)) for schema in SCHEMAS_OF_TEXT),
    *(("lark", f"start: %json {json.dumps(schema)} | /b/") for schema in SCHEMAS_OF_TEXT),
    ("lark", f'start: "{TICKET}"'),
    ("lark", f'start: "\\"/{TICKET}/" // {TICKET}'),
    ("lark", f"start: /b/ # {TICKET}"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_an_expression_that_repeats_too_often_is_refused_at_sight(kind: str, text: str) -> None:
    gc.disable()  # what else this process holds is no work of the reader's
    try:
        begun_s = time.thread_time()
        with pytest.raises(GrammarFault, match="may repeat"):
            source_of(kind, text)
        assert time.thread_time() - begun_s < 1.0  # and not compiled for seconds
    finally:
        gc.enable()


@pytest.mark.parametrize(("kind", "text"), FOLLOWED)
def test_text_that_looks_like_it_and_what_repeats_as_often_as_it_may_are_followed(
    kind: str, text: str
) -> None:
    assert source_of(kind, text)


@pytest.mark.parametrize(
    ("kind", "text", "output"),
    [
        ("choice", json.dumps([TICKET]), TICKET),
        ("json_schema", json.dumps({"const": TICKET}), json.dumps(TICKET)),
        ("lark", f'start: "{TICKET}"', TICKET),
    ],
)
def test_the_text_is_what_comes_out(kind: str, text: str, output: str) -> None:
    tokenizer = LLTokenizer("byte")
    matcher = compile_grammar(tokenizer, source_of(kind, text))
    assert matcher.consume_tokens(list(output.encode()))
    assert matcher.is_accepting()


def test_a_schema_nested_deeper_than_it_can_be_read_is_a_fault() -> None:
    with pytest.raises(GrammarFault):
        source_of("lark", "start: %json " + '{"not":' * 50_000)
