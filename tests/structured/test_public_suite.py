"""Schemas that others wrote: each is followed, or refused by name."""

from __future__ import annotations

import json

import jsonschema_rs

from noria import LLM, RequestError, SamplingParams
from noria.sampling.grammar import Grammar
from support_suite import suite_schemas


def test_every_schema_of_the_suite_is_followed_or_refused(llm: LLM) -> None:
    num_ended, num_refused = 0, 0
    for name, schema in suite_schemas():
        grammar = Grammar("json_schema", json.dumps(schema), "response_format")
        params = SamplingParams(temperature=1.0, max_tokens=150, seed=3, grammar=grammar)
        try:
            (result,) = llm.generate("hello", params, show_progress=False)
        except RequestError as error:
            assert error.param == "response_format", name
            num_refused += 1
            continue
        (output,) = result.outputs
        assert output.finish_reason in ("stop", "length"), (name, output.error)
        if output.finish_reason == "stop":
            num_ended += 1
            assert jsonschema_rs.validator_for(schema).is_valid(json.loads(output.text)), (name, output.text)
    assert num_ended > 100 and num_refused < 0.7 * len(suite_schemas())
