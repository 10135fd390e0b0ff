"""Structured outputs as clients ask for them, beside requests of other kinds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel, Field

from support_schemas import Schemas
from support_serving import Serving, serving

NUM_REQUESTS = 96


class Pet(BaseModel):
    kind: Literal["cat", "dog"]
    legs: int = Field(ge=0, le=9)
    tags: list[Literal["old", "young"]] = Field(max_length=3)


class Owner(BaseModel):
    name: str = Field(pattern="^[a-z]{1,9}$")
    pets: list[Pet] = Field(max_length=2)
    friend: Pet | None


@pytest.fixture(scope="module")
def server(letters_model: Path) -> Iterator[Serving]:
    """Its pool is too small for all that run, so some are preempted."""
    settings = {"model": str(letters_model), "max_model_len": 1024, "num_gpu_blocks_override": 160}
    with serving(**settings) as made:
        yield made
        made.check_clean()
        assert made.engine._loop.constraints._grammars._sequences == {}


@pytest.fixture(scope="module")
def client(server: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


LOST = {"name": "a", "schema": {"$ref": "#/no"}}
MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]


def body_of(index: int, schema: dict[str, Any]) -> dict[str, Any]:
    """Every third has no schema, every other is streamed."""
    body = {"model": "test", "prompt": "hello", "max_tokens": 300, "seed": index, "stream": index % 2 == 0}
    if index % 3:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    else:
        body["ignore_eos"] = True
    return body


async def text_of(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[str, str]:
    """The text and how it ended."""
    answer = await client.post("/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    if not body["stream"]:
        (choice,) = answer.json()["choices"]
        return choice["text"], choice["finish_reason"]
    lines = [line[6:] for line in answer.text.split("\n\n") if line.startswith("data: {")]
    choices = [json.loads(line)["choices"][0] for line in lines]
    return "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]


def test_streamed_or_not_and_among_other_traffic_outputs_are_valid(server: Serving) -> None:
    draw = Schemas(seed=3)
    schemas = [draw.next() for _ in range(NUM_REQUESTS)]

    async def run() -> list[tuple[str, str]]:
        limits = httpx.Limits(max_connections=48)
        async with httpx.AsyncClient(base_url=server.url, limits=limits) as client:
            asked = [text_of(client, body_of(index, schema)) for index, schema in enumerate(schemas)]
            return await asyncio.gather(*asked)

    num_valid = 0
    for index, (text, finish) in enumerate(asyncio.run(run())):
        if index % 3 and finish == "stop":
            jsonschema_rs.validator_for(schemas[index], validate_formats=True).validate(json.loads(text))
            num_valid += 1
    assert num_valid > NUM_REQUESTS / 3
    assert server.engine.recorder.steps()


def test_a_chat_is_parsed_into_a_model_of_pydantics(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="test", messages=MESSAGES, response_format=Owner, temperature=1, seed=4
    )
    assert isinstance(completion.choices[0].message.parsed, Owner)


def test_a_streamed_chat_is_parsed_into_a_model_of_pydantics(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="test", messages=MESSAGES, response_format=Owner, temperature=1, seed=4
    ) as stream:
        completion = stream.get_final_completion()
    assert isinstance(completion.choices[0].message.parsed, Owner)


def test_a_response_is_parsed_into_a_model_of_pydantics(client: openai.OpenAI) -> None:
    seed = {"seed": 4}
    response = client.responses.parse(
        model="test", input="hello", text_format=Owner, temperature=1, extra_body=seed
    )
    assert isinstance(response.output_parsed, Owner)


def test_a_message_follows_the_format_of_its_output_config(server: Serving) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    body = {
        "model": "test",
        "max_tokens": 200,  # more than all the spaces that the schema allows
        "messages": MESSAGES,
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    answer = httpx.post(f"{server.url}/v1/messages", json=body, timeout=60).json()
    assert json.loads(answer["content"][0]["text"]) == {"a": 1}
    assert answer["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"$ref": "#/no"}},
                }
            },
            "response_format",
        ),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"grammar": "start: no"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"structural_tag": {"structures": 5}}}, "structured_outputs.structural_tag"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_the_name_of_its_field(
    server: Serving, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "test", "prompt": "hello", **fields}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
