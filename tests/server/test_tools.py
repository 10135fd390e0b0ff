"""Tool calls over HTTP: a model that writes them, three protocols that tell them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support_server import Server, chunks, tokenizer
from support_tools import CALLS, CHAT_TOOLS, PROTOCOLS, TWO_CALLS, writing

BY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


def prompt_of(server: Server) -> str:
    return tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


@BY_PROTOCOL
def test_calls_and_the_words_before_them_are_told_apart_whole_and_streamed(protocol: Any) -> None:
    for cut in (None, lambda ids: [ids], lambda ids: [ids[i : i + 7] for i in range(0, len(ids), 7)]):
        with writing(TWO_CALLS, cut=cut) as server:
            whole = protocol.ask(server, tools=protocol.tools)
            streamed = protocol.stream(server, tools=protocol.tools)
        for said in (whole, streamed):
            assert (said.text, said.parsed) == ("I look.", CALLS)
            assert said.finish == protocol.finishes[1]
            assert len(set(said.ids)) == 2
        assert whole.order == streamed.order


@BY_PROTOCOL
def test_an_answer_without_calls_is_as_it_would_be_without_tools(protocol: Any) -> None:
    with writing("  The <tool> turns.\n") as server:
        for said in (
            protocol.ask(server, tools=protocol.tools),
            protocol.stream(server, tools=protocol.tools),
        ):
            assert (said.text, said.calls, said.finish) == ("  The <tool> turns.\n", [], protocol.finishes[0])


@BY_PROTOCOL
def test_markup_is_text_where_there_are_no_tools_to_call(protocol: Any) -> None:
    none = {"type": "none"} if protocol is PROTOCOLS["messages"] else "none"
    with writing(TWO_CALLS) as server:
        for fields in ({}, {"tools": protocol.tools, "tool_choice": none}):
            assert protocol.ask(server, **fields).text == TWO_CALLS
            assert protocol.stream(server, **fields).text == TWO_CALLS
            assert "<tools>" not in prompt_of(server)


@BY_PROTOCOL
def test_a_call_of_no_tool_of_ours_is_text(protocol: Any) -> None:
    text = '<tool_call>\n{"name": "rm", "arguments": {}}\n</tool_call>'
    with writing(text) as server:
        for said in (
            protocol.ask(server, tools=protocol.tools),
            protocol.stream(server, tools=protocol.tools),
        ):
            assert (said.text, said.calls, said.finish) == (text, [], protocol.finishes[0])


@BY_PROTOCOL
def test_only_one_call_is_told_where_only_one_may_be_made(protocol: Any) -> None:
    one: dict[str, Any] = {"parallel_tool_calls": False}
    if protocol is PROTOCOLS["messages"]:
        one = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    with writing(TWO_CALLS) as server:
        assert protocol.ask(server, tools=protocol.tools, **one).parsed == CALLS[:1]
        assert protocol.stream(server, tools=protocol.tools, **one).parsed == CALLS[:1]


@BY_PROTOCOL
def test_a_forced_answer_is_calls_and_a_grammar_makes_it_so(protocol: Any) -> None:
    text = json.dumps([{"name": name, "parameters": arguments} for name, arguments in CALLS])
    with writing(text) as server:
        for ask in (protocol.ask, protocol.stream):
            said = ask(server, tools=protocol.tools, tool_choice=protocol.required)
            assert (said.text, said.parsed, said.finish) == ("", CALLS, protocol.finishes[1])
            grammar = server.engine.submitted[-1].params.grammar
            assert grammar.kind == "json_schema"
            names = [one["properties"]["name"]["const"] for one in json.loads(grammar.text)["items"]["anyOf"]]
            assert names == [name for name, _ in CALLS]


@BY_PROTOCOL
def test_a_named_tool_is_called_with_an_answer_of_nothing_but_its_arguments(protocol: Any) -> None:
    name, arguments = CALLS[0]
    with writing(json.dumps(arguments)) as server:
        for ask in (protocol.ask, protocol.stream):
            said = ask(server, tools=protocol.tools, tool_choice=protocol.named(name))
            assert (said.text, said.parsed, said.finish) == ("", [(name, arguments)], protocol.finishes[2])
            schema = json.loads(server.engine.submitted[-1].params.grammar.text)
            assert schema["properties"] == CHAT_TOOLS[0]["function"]["parameters"]["properties"]
            assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("must", "required"),
        ({"type": "function", "function": {"name": "g"}}, "'g', which is not in tools"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "mcp"}, "tool_choice must be of the type"),
        ({"type": "custom"}, "tool_choice.custom"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, "a mode, auto or required, and tools"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{}]}}, "tool_choice.function"),
    ],
)
def test_a_choice_that_cannot_be_obeyed_is_refused(choice: Any, words: str) -> None:
    with writing("Hm.") as server:
        error = server.chat(tools=CHAT_TOOLS, tool_choice=choice).json()["error"]
        assert (error["code"], error["param"]) == (400, "tool_choice")
        assert words in error["message"]


def test_the_tools_that_are_allowed_are_the_only_ones() -> None:
    allowed = [{"type": "function", "function": {"name": "now"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    with writing('<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>') as server:
        message = server.chat(tools=CHAT_TOOLS, tool_choice=choice, max_tokens=500).json()["choices"][0][
            "message"
        ]
    assert "tool_calls" not in message
    assert "get_weather" in message["content"]


def test_a_choice_may_be_kept_from_the_model() -> None:
    with writing("[]", enable_auto_tool_choice=False) as server:
        error = server.chat(tools=CHAT_TOOLS).json()["error"]
        assert (error["code"], error["param"]) == (400, "tool_choice")
        assert server.chat(tools=CHAT_TOOLS, tool_choice="required").status_code == 200
        assert server.chat(tools=CHAT_TOOLS, tool_choice="none").status_code == 200


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([5], "tools[0] must be an object"),
        ([{"type": "mcp", "mcp": {"name": "f"}}], "'mcp'"),
        ([{"type": "custom", "custom": {}}], "tools[0].custom.name"),
        (
            [{"type": "custom", "custom": {"name": "f", "format": {"type": "json"}}}],
            "custom.format.type must be",
        ),
        ([{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar"}}}], "needs a syntax"),
        (
            [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "syntax": "regex"}}}],
            "needs a definition",
        ),
        ([{"type": "function", "function": {"name": 5}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "f", "parameters": []}}], "tools[0].function.parameters"),
        (CHAT_TOOLS * 2, "two that are called 'get_weather'"),
        (CHAT_TOOLS * 600, "at most 1024, got 1200"),
    ],
)
def test_what_is_no_tool_is_refused(tools: Any, words: str) -> None:
    with writing("Hm.") as server:
        error = server.chat(tools=tools).json()["error"]
        assert (error["code"], error["param"]) == (400, "tools")
        assert words in error["message"]


def test_each_choice_of_several_has_its_own_calls() -> None:
    with writing(TWO_CALLS) as server:
        answer = server.chat(tools=CHAT_TOOLS, n=2, max_tokens=500).json()
        assert [len(choice["message"]["tool_calls"]) for choice in answer["choices"]] == [2, 2]
        streamed = chunks(server.chat(tools=CHAT_TOOLS, n=2, max_tokens=500, stream=True))
        begun = [
            (choice["index"], call["index"])
            for chunk in streamed
            for choice in chunk["choices"]
            for call in choice["delta"].get("tool_calls", [])
            if "id" in call
        ]
        assert sorted(begun) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_call_that_is_cut_off_ends_by_length_with_what_there_is() -> None:
    with writing(TWO_CALLS) as server:
        for end in (100, 130):
            choice = server.chat(tools=CHAT_TOOLS, max_tokens=end).json()["choices"][0]
            assert choice["finish_reason"] == "length"
            [call] = choice["message"]["tool_calls"]
            whole = json.dumps(CALLS[0][1], ensure_ascii=False)
            assert whole.startswith(call["function"]["arguments"])


def test_pieces_of_several_tokens_say_the_same() -> None:
    with writing(TWO_CALLS) as server:
        whole = PROTOCOLS["chat"].stream(server, tools=CHAT_TOOLS)
        paced = PROTOCOLS["chat"].stream(server, tools=CHAT_TOOLS, stream_interval=9)
    assert (paced.text, paced.calls, paced.finish) == (whole.text, whole.calls, whole.finish)


def test_log_probabilities_are_told_of_every_token_beside_calls() -> None:
    with writing(TWO_CALLS) as server:
        fields: dict[str, Any] = {"tools": CHAT_TOOLS, "logprobs": True, "max_tokens": 500}
        answer = server.chat(**fields).json()
        whole = answer["choices"][0]["logprobs"]["content"]
        assert len(whole) == answer["usage"]["completion_tokens"]
        streamed = chunks(server.chat(**fields, stream=True))
        told = [
            entry
            for chunk in streamed
            for choice in chunk["choices"]
            for entry in (choice["logprobs"] or {"content": []})["content"]
        ]
        assert told == whole


def test_the_conversation_so_far_is_shown_to_a_model_whose_template_knows_no_tools() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": '{"a": "é"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c", "content": "12:00"},
        {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "13:00"}]},
    ]
    with writing("Noon.") as server:
        assert server.chat(messages=messages, tools=CHAT_TOOLS).status_code == 200
        prompt = prompt_of(server)
    written = '<tool_call>\n{"name": "now", "arguments": {"a": "é"}}\n</tool_call>'
    head, _, rest = prompt.partition("<|end|>\n")
    assert head.startswith("<|start|>system\nBe brief.\nYou can use the tools below.")
    assert json.dumps(CHAT_TOOLS[0]["function"]) in head
    assert rest == (
        "<|start|>user\nWhen?<|end|>\n"
        f"<|start|>assistant\n{written}\n{written}<|end|>\n"
        "<|start|>user\n<tool_response>\n12:00\n</tool_response>\n<tool_response>\n13:00\n</tool_response><|end|>\n"
        "<|start|>assistant\n"
    )


TEMPLATE = (
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}<{{ m.role }}"
    "{% for c in m.tool_calls or [] %} {{ c.function.name }}({{ c.function.arguments.x }}){% endfor %}"
    "{% if m.tool_call_id %} {{ m.tool_call_id }}{% endif %}> {{ m.content }}\n{% endfor %}<tool_call>"
)
HISTORY: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": "So",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "now", "arguments": '{"x": 1}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "2"},
        ]
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "So"},
            {"type": "function_call", "call_id": "c", "name": "now", "arguments": '{"x": 1}'},
            {"type": "function_call_output", "call_id": "c", "output": "2"},
        ]
    },
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "So"},
                    {"type": "tool_use", "id": "c", "name": "now", "input": {"x": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "2"}]},
        ],
    },
}


@pytest.mark.parametrize("path", HISTORY)
def test_a_template_that_knows_tools_gets_them_and_the_calls_and_what_they_returned(path: str) -> None:
    tools = dict(zip(HISTORY, (protocol.tools for protocol in PROTOCOLS.values()), strict=True))[path]
    with writing("ok", template=TEMPLATE) as server:
        answer = server.post(path, model="wheel", tools=tools, **HISTORY[path])
        assert answer.status_code == 200, answer.text
        assert (
            prompt_of(server) == "[get_weather][now]<user> Hi\n<assistant now(1)> So\n<tool c> 2\n<tool_call>"
        )


def test_mistrals_calls_have_the_ids_that_its_template_wants() -> None:
    with writing('[TOOL_CALLS][{"name": "now", "arguments": {}}]', tool_call_parser="mistral") as server:
        [made] = PROTOCOLS["chat"].ask(server, tools=CHAT_TOOLS).ids
        assert len(made) == 9 and made.isalnum()


def test_nothing_is_parsed_where_nobody_knows_how_the_model_calls() -> None:
    with writing(TWO_CALLS, tool_call_parser="none") as server:
        assert PROTOCOLS["chat"].ask(server, tools=CHAT_TOOLS).text == TWO_CALLS


PLUGIN = """
from noria.parsers.bodies import json_calls
from noria.parsers.formats import ToolFormat

TOOL_FORMATS = {"starts": ToolFormat(json_calls, ("<|start|>",))}
"""


def test_a_marker_that_is_a_special_token_is_seen_and_never_told(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)
    text = 'So. <|start|>{"name": "now", "arguments": {}}<|start|> Well.'
    with writing(text, tool_parser_plugin=str(plugin)) as server:
        for protocol in PROTOCOLS.values():
            for ask in (protocol.ask, protocol.stream):
                said = ask(server, tools=protocol.tools)
                assert (said.text, said.parsed) == ("So.Well.", [("now", {})])
                assert "<|start|>" not in ask(server).text
