"""Strict tools with a model of random weights: whatever it calls with, the grammar made it so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import openai
import pytest

from noria import LLM, ChatTools, RequestError, SamplingParams
from support_gguf import TinyShape, byte_level_tokens, write_tiny_gguf
from support_serving import Serving, serving

TRIGGER = "<|tool_call|>"
TOKENS = (*byte_level_tokens(), TRIGGER)
SETTINGS = {"max_model_len": 2048, "num_gpu_blocks_override": 1024, "tool_call_parser": "granite"}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
}
CHAT_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "go", "strict": True, "parameters": SCHEMA}}
]
TOOLS: list[Any] = [{"type": "function", "name": "go", "strict": True, "parameters": SCHEMA}]
MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]
NUM_CHOICES = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token a byte, and one that begins calls."""
    path = tmp_path_factory.mktemp("calls") / "calls.gguf"
    metadata = {
        "llama.context_length": 4096,
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    }
    write_tiny_gguf(path, shape=TinyShape(num_layers=1), tokens=TOKENS, metadata=metadata)
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Serving]:
    with serving(model=str(model), **SETTINGS) as made:
        yield made
        made.check_clean()


@pytest.fixture(scope="module")
def client(server: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


# Free text is the trigger as soon as it may be, and what is not free leaves no choice but the grammar's.
EAGER = {str(TOKENS.index(TRIGGER)): 100}


def assert_followed(calls: list[tuple[str, str]], is_cut: bool) -> None:
    """Each call follows its schema; the last one may be cut."""
    assert calls
    whole = calls[:-1] if is_cut else calls
    for name, arguments in whole:
        assert name == "go"
        jsonschema_rs.validate(SCHEMA, json.loads(arguments))


def test_whole_and_streamed_each_choice_calls_by_the_schema(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "test", "messages": MESSAGES, "tools": CHAT_TOOLS, "logit_bias": EAGER, "seed": 7,
        "n": NUM_CHOICES, "max_tokens": 200,
    }  # fmt: skip
    whole = client.chat.completions.create(**asked)
    told: list[list[list[str]]] = [[] for _ in range(NUM_CHOICES)]
    for chunk in client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or ():
                if call.id:
                    told[choice.index].append([call.function.name, ""])
                told[choice.index][-1][1] += call.function.arguments or ""
    assert sum(map(len, told)) > NUM_CHOICES
    for choice, streamed in zip(whole.choices, told, strict=True):
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        assert [tuple(call) for call in streamed] == calls
        assert_followed(calls, choice.finish_reason == "length")


def test_a_response_calls_by_the_schema(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "test", "input": "hello", "tools": TOOLS, "max_output_tokens": 200,
        "extra_body": {"logit_bias": EAGER, "seed": 3},
    }  # fmt: skip
    whole = client.responses.create(**asked)
    *_, last = client.responses.create(**asked, stream=True)
    for response in (whole, last.response):
        calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
        assert_followed(calls, response.status == "incomplete")


@pytest.mark.parametrize("seed", range(4))
def test_beside_a_form_the_other_way_out_is_a_call(client: openai.OpenAI, seed: int) -> None:
    z = str(TOKENS.index("z"))
    answer = client.chat.completions.create(
        model="test", messages=MESSAGES, tools=CHAT_TOOLS, logit_bias={z: -100}, seed=seed, max_tokens=300,
        parallel_tool_calls=False, extra_body={"structured_outputs": {"regex": "z+"}},
    )  # fmt: skip
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert_followed(
        [(call.function.name, call.function.arguments) for call in choice.message.tool_calls], False
    )
    assert not choice.message.content


SQL: list[Any] = [
    {
        "type": "custom",
        "custom": {
            "name": "sql",
            "format": {
                "type": "grammar",
                "grammar": {"syntax": "lark", "definition": 'start: "SELECT " /[a-z]{1,5}/ ";"'},
            },
        },
    },
    *CHAT_TOOLS,
]


@pytest.mark.parametrize("seed", range(4))
def test_a_custom_tool_s_input_is_in_the_words_of_its_grammar(client: openai.OpenAI, seed: int) -> None:
    asked: dict[str, Any] = {
        "model": "test", "messages": MESSAGES, "tools": SQL, "seed": seed, "max_tokens": 200, "temperature": 1.0
    }  # fmt: skip
    named: Any = {"type": "custom", "custom": {"name": "sql"}}
    (choice,) = client.chat.completions.create(**asked, tool_choice=named).choices
    (call,) = choice.message.tool_calls
    assert (call.type, call.custom.name, choice.finish_reason) == ("custom", "sql", "stop")
    assert re.fullmatch("SELECT [a-z]{1,5};", call.custom.input)
    for banned in "[c":  # what the other kind of call begins with is the only way left
        bias = {str(TOKENS.index(banned)): -100}
        (choice,) = client.chat.completions.create(**asked, tool_choice="required", logit_bias=bias).choices
        assert choice.finish_reason in ("tool_calls", "length")
        calls = choice.message.tool_calls
        if banned == "[":
            assert re.fullmatch("SELECT [a-z]{1,5};", calls[0].custom.input)
        else:
            functions = [
                (one.function.name, one.function.arguments) for one in calls if one.type == "function"
            ]
            assert_followed(functions, choice.finish_reason == "length")


def test_a_response_calls_a_custom_tool_by_its_grammar(client: openai.OpenAI) -> None:
    tool = {
        "type": "custom",
        "name": "sql",
        "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}"},
    }
    asked: dict[str, Any] = {
        "model": "test", "input": "hello", "tools": [tool], "tool_choice": {"type": "custom", "name": "sql"},
        "max_output_tokens": 50, "extra_body": {"seed": 3},
    }  # fmt: skip
    whole = client.responses.create(**asked)
    *_, last = client.responses.create(**asked, stream=True)
    for response in (whole, last.response):
        (item,) = response.output
        assert (item.type, item.name) == ("custom_tool_call", "sql")
        assert re.fullmatch("[0-9]{3}", item.input)


def test_a_schema_that_cannot_be_followed_is_refused_by_its_field(client: openai.OpenAI) -> None:
    broken = {"type": "object", "properties": {"a": {"$ref": "#/no"}}}
    tools: list[Any] = [
        {"type": "function", "function": {"name": "go", "strict": True, "parameters": broken}}
    ]
    with pytest.raises(openai.BadRequestError, match=r"Pointer '/no' does not exist$") as caught:
        client.chat.completions.create(model="test", messages=MESSAGES, tools=tools)
    assert caught.value.param == "tools"


def test_offline_a_chat_is_read_as_the_server_reads_it(model: Path, client: openai.OpenAI) -> None:
    served = client.chat.completions.create(
        model="test", messages=MESSAGES, tools=CHAT_TOOLS, logit_bias=EAGER, seed=7, max_tokens=200
    )
    calls = [(call.function.name, call.function.arguments) for call in served.choices[0].message.tool_calls]
    bias = {int(token_id): float(value) for token_id, value in EAGER.items()}
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=200, logit_bias=bias)
    with LLM(model, show_progress=False, **SETTINGS) as llm:
        (result,) = llm.chat(MESSAGES, params, tools=CHAT_TOOLS, show_progress=False)
        (output,) = result.outputs
        assert [(call.name, call.arguments) for call in output.tool_calls] == calls
        assert output.text == (served.choices[0].message.content or "")
        *_, last = llm.stream_chat(MESSAGES, params, tools=CHAT_TOOLS)
        assert [(call.name, call.arguments) for call in last.output.tool_calls] == calls
        named = ChatTools(CHAT_TOOLS, {"type": "function", "function": {"name": "go"}})
        (result,) = llm.chat(
            MESSAGES,
            SamplingParams(temperature=1.0, seed=7, max_tokens=200),
            tools=named,
            show_progress=False,
        )
        assert_followed([(call.name, call.arguments) for call in result.outputs[0].tool_calls], False)
        for wrong in ("go", [5], ChatTools(CHAT_TOOLS, "must"), ChatTools(CHAT_TOOLS, 5)):
            with pytest.raises(RequestError, match="tool"):
                llm.chat(MESSAGES, params, tools=wrong)
