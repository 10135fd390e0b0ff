"""A checkpoint's response template over HTTP: what it describes is told apart in three protocols."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from noria.chats.formats import Formats
from noria.config.errors import ConfigError
from noria.config.tokenizer import TokenizerSpec
from noria.config.tools import ToolOptions
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer
from support_server import FakeEngine, Server, says, served_model, serving
from support_tools import CALLS, PROTOCOLS, THINKING_TEMPLATE
from support_vocabularies import byte_level_reference, gguf_of_byte_level

BY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
TEMPLATE: dict[str, Any] = {
    "start_anchor": "<|start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"\[\[(?P<name>\w+) ",
            "close": "]]",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"<\|end\|>"},
    },
}
THOUGHT = "<think>\nHm.\n</think>\n\n"
WRITTEN = "I look.\n" + "\n".join(
    f"[[{name} {json.dumps(arguments, ensure_ascii=False)}]]" for name, arguments in CALLS
)


def tokenizer(**said: Any) -> Tokenizer:
    return build_tokenizer(
        TokenizerSpec(
            vocabulary=gguf_of_byte_level(byte_level_reference()),
            bos_token_id=1,
            eos_token_ids=(0,),
            chat_templates=(("default", THINKING_TEMPLATE),),
            **said,
        )
    )


def writing(text: str) -> Any:
    model = replace(
        served_model(max_model_len=16384), tokenizer=tokenizer(response_template=json.dumps(TEMPLATE))
    )
    return serving(FakeEngine(says(text)), model=model)


@BY_PROTOCOL
def test_reasoning_words_and_calls_are_told_apart_whole_and_streamed(protocol: Any) -> None:
    with writing(f"{THOUGHT}{WRITTEN}<|end|>") as server:
        for ask in (protocol.ask, protocol.stream):
            said = ask(server, tools=protocol.tools)
            assert (said.reasoning, said.text, said.parsed) == ("Hm.", "I look.", CALLS)
            assert said.finish == protocol.finishes[1]


@BY_PROTOCOL
def test_without_tools_a_call_is_text_and_reasoning_is_none(protocol: Any) -> None:
    with writing(f"{THOUGHT}{WRITTEN}") as server:
        for ask in (protocol.ask, protocol.stream):
            said = ask(server)
            assert (said.reasoning, said.text, said.calls) == ("Hm.", WRITTEN, [])


@BY_PROTOCOL
def test_a_forced_answer_is_read_as_its_grammar_makes_it(protocol: Any) -> None:
    text = json.dumps([{"name": name, "parameters": arguments} for name, arguments in CALLS])
    with writing(text) as server:
        said = protocol.ask(server, tools=protocol.tools, tool_choice=protocol.required)
        assert (said.text, said.parsed) == ("", CALLS)


def usage(server: Server, **fields: Any) -> int:
    return server.chat(**fields).json()["usage"]["completion_tokens_details"]["reasoning_tokens"]


def test_reasoning_that_the_prompt_has_begun_is_read_counted_and_bounded() -> None:
    kwargs = {"opens": True}
    with writing("Hm.</think>Yes.") as server:
        message = server.chat(chat_template_kwargs=kwargs).json()["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("Hm.", "Yes.")
        counted = len(tokenizer().encode("Hm.</think>", add_special_tokens=False))
        assert usage(server, chat_template_kwargs=kwargs) == counted
        server.chat(chat_template_kwargs=kwargs, thinking_token_budget=5)
        params = server.engine.submitted[-1].params
        assert (params.thinking_token_budget, params.reasoning_begin_ids) == (5, ())
        assert tokenizer().decode(params.reasoning_end_ids) == "</think>"


def test_special_tokens_that_the_template_mentions_are_read_and_never_told() -> None:
    found = Formats.of(ToolOptions(), tokenizer(response_template=json.dumps(TEMPLATE)))
    assert {"<|start|>", "<|end|>"} <= set(found.special)
    assert found.template is not None and found.tools is None


def test_a_template_that_cannot_be_used_stops_the_start_by_the_field_that_is_wrong() -> None:
    wrong = json.dumps({**TEMPLATE, "fields": {"content": {"close": 3}}})
    with pytest.raises(ConfigError, match=r"fields\.content\.close must be .* got 3 .*--tool-call-parser"):
        Formats.of(ToolOptions(), tokenizer(response_template=wrong))
    named = ToolOptions(tool_call_parser="hermes", reasoning_parser="deepseek_r1")
    assert Formats.of(named, tokenizer(response_template=wrong)).template is None


def test_the_older_schema_is_told_to_be_of_no_use_with_the_flags_that_help(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "noria.server"):
        Formats.of(ToolOptions(), tokenizer(has_response_schema=True))
        assert len(caplog.messages) == 1
        assert "response_schema" in caplog.messages[0] and "--tool-call-parser" in caplog.messages[0]
        named = ToolOptions(tool_call_parser="hermes", reasoning_parser="none")
        Formats.of(named, tokenizer(has_response_schema=True))
    assert len(caplog.messages) == 1
