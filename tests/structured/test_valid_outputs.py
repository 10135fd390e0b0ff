"""Whatever the model: an output that its schema says ends, is an instance of it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from noria import LLM, SamplingParams
from noria.sampling.grammar import Grammar
from support_schemas import Schema, Schemas

NUM_SCHEMAS = 300
PROMPT = "hello world"
LONG = 700  # tokens, each about a byte


def params_of(schema: Schema, **changes: Any) -> SamplingParams:
    stated = {"temperature": 1.0, "max_tokens": LONG, "seed": 5, **changes}
    return SamplingParams(**stated, grammar=Grammar("json_schema", json.dumps(schema)))


def check(schema: Schema, text: str) -> None:
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(json.loads(text))


@pytest.fixture(scope="module")
def schemas() -> list[Schema]:
    draw = Schemas(seed=11)
    return [draw.next() for _ in range(NUM_SCHEMAS)]


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_random_schemas_all_at_once_are_all_followed(
    llm: LLM, schemas: list[Schema], temperature: float
) -> None:
    params = [params_of(schema, temperature=temperature) for schema in schemas]
    results = llm.generate([PROMPT] * len(schemas), params, show_progress=False)
    ended = 0
    for schema, result in zip(schemas, results, strict=True):
        (output,) = result.outputs
        assert output.finish_reason in ("stop", "length"), (schema, output.error)
        if output.finish_reason == "stop":
            ended += 1
            check(schema, output.text)
    assert ended > 0.8 * len(schemas)


def test_the_answer_is_the_same_alone_and_among_others(llm: LLM, schemas: list[Schema]) -> None:
    params = [params_of(schema) for schema in schemas[:60]]
    together = llm.generate([PROMPT] * len(params), params, show_progress=False)
    for index in range(0, len(params), 6):
        (alone,) = llm.generate(PROMPT, params[index], show_progress=False)
        assert alone.outputs[0].token_ids == together[index].outputs[0].token_ids


def test_several_outputs_of_one_schema_differ_and_are_all_valid(llm: LLM) -> None:
    schema = {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 99},
        "minItems": 5,
        "maxItems": 5,
    }
    (result,) = llm.generate(PROMPT, params_of(schema, n=8), show_progress=False)
    texts = [output.text for output in result.outputs]
    for text in texts:
        check(schema, text)
    assert len(set(texts)) > 1
