"""Chats with tools in three protocols, in front of a model that writes what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from support_events import named_events
from support_server import FakeEngine, Server, chunks, says, served_model, serving, tokenizer

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
SCHEMAS: dict[str, dict[str, Any]] = {"get_weather": WEATHER, "now": {"type": "object", "properties": {}}}
CHAT_TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"Tells {name}.", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
RESPONSE_TOOLS = [
    {"type": "function", "name": name, "description": f"Tells {name}.", "parameters": schema, "strict": False}
    for name, schema in SCHEMAS.items()
]
MESSAGE_TOOLS = [
    {"name": name, "description": f"Tells {name}.", "input_schema": schema}
    for name, schema in SCHEMAS.items()
]
TWO_CALLS = (
    "I look.\n<tool_call>\n"
    '{"name": "get_weather", "arguments": {"city": "Zürich \\"Oerlikon\\"", "days": 3}}'
    '\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
CALLS = [("get_weather", {"city": 'Zürich "Oerlikon"', "days": 3}), ("now", {})]
THOUGHT = "<think>\nLet me see.\n</think>\n\nThe wheel turns."
THINKING_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
    "</think>{% endif %}{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% if opens %}<think>\n{% endif %}{% endif %}"
)


@contextmanager
def writing(
    text: str,
    template: str | None = None,
    cut: Callable[[list[int]], list[list[int]]] | None = None,
    **options: Any,
) -> Iterator[Server]:
    """A server whose model writes that text. cut: how its tokens share deltas."""
    model = served_model(max_model_len=16384)
    if template is not None:
        model = replace(model, tokenizer=tokenizer(template))
    with serving(FakeEngine(says(text, cut=cut)), model=model, **options) as server:
        yield server


@dataclass
class Said:
    """What an answer held. order: of its parts, by kind."""

    text: str
    calls: list[tuple[str, str]]  # name, arguments as JSON text
    finish: str | None
    ids: list[str]
    reasoning: str = ""
    order: tuple[str, ...] = ()

    @property
    def parsed(self) -> list[tuple[str, Any]]:
        return [(name, json.loads(arguments)) for name, arguments in self.calls]


USER = [{"role": "user", "content": "turn"}]


class Chat:
    """POST /v1/chat/completions."""

    tools = CHAT_TOOLS
    required: Any = "required"
    finishes = ("stop", "tool_calls", "stop")  # without calls, with them, of a tool that was named

    @staticmethod
    def named(name: str) -> Any:
        return {"type": "function", "function": {"name": name}}

    def ask(self, server: Server, **fields: Any) -> Said:
        answer = server.chat(max_tokens=2000, **fields)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        message = choice["message"]
        calls = message.get("tool_calls", [])
        return Said(
            message["content"] or "",
            [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
            choice["finish_reason"],
            [call["id"] for call in calls],
            message.get("reasoning", ""),
        )

    def stream(self, server: Server, **fields: Any) -> Said:
        said = Said("", [], None, [])
        for chunk in chunks(server.chat(max_tokens=2000, stream=True, **fields)):
            choice = chunk["choices"][0]
            delta = choice["delta"]
            assert len(delta) <= 2
            said.text += delta.get("content", "")
            said.reasoning += delta.get("reasoning", "")
            for call in delta.get("tool_calls", []):
                self._add(said, call)
            said.finish = choice["finish_reason"] or said.finish
        return said

    @staticmethod
    def _add(said: Said, call: dict[str, Any]) -> None:
        if "id" in call:
            assert call["type"] == "function"
            assert call["index"] == len(said.calls)
            said.ids.append(call["id"])
            said.calls.append((call["function"]["name"], call["function"]["arguments"]))
            return
        assert call["index"] == len(said.calls) - 1
        name, arguments = said.calls[-1]
        said.calls[-1] = (name, arguments + call["function"]["arguments"])


class Responses:
    """POST /v1/responses."""

    tools = RESPONSE_TOOLS
    required: Any = "required"
    finishes = ("completed", "completed", "completed")

    @staticmethod
    def named(name: str) -> Any:
        return {"type": "function", "name": name}

    def ask(self, server: Server, **fields: Any) -> Said:
        answer = server.post("/v1/responses", model="wheel", input="turn", **fields)
        assert answer.status_code == 200, answer.text
        return self._said(answer.json())

    def stream(self, server: Server, **fields: Any) -> Said:
        events = named_events(
            server.post("/v1/responses", model="wheel", input="turn", stream=True, **fields)
        )
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        final = self._said(events[-1]["response"])
        streamed = Said("", [], final.finish, [])
        kinds = {"output_text.delta": "text", "reasoning_text.delta": "reasoning"}
        for event in events:
            kind = event["type"].removeprefix("response.")
            if kind in kinds:
                setattr(streamed, kinds[kind], getattr(streamed, kinds[kind]) + event["delta"])
            elif kind == "output_item.added" and event["item"]["type"] == "function_call":
                assert event["item"]["arguments"] == ""
                streamed.calls.append((event["item"]["name"], ""))
                streamed.ids.append(event["item"]["call_id"])
            elif kind == "function_call_arguments.delta":
                name, arguments = streamed.calls[-1]
                streamed.calls[-1] = (name, arguments + event["delta"])
            elif kind == "function_call_arguments.done":
                assert event["arguments"] == streamed.calls[-1][1]
            elif kind == "output_item.done":
                assert event["item"] == events[-1]["response"]["output"][event["output_index"]]
        streamed.order = final.order
        assert streamed == final
        return streamed

    @staticmethod
    def _said(response: dict[str, Any]) -> Said:
        said = Said("", [], response["status"], [], "", tuple(item["type"] for item in response["output"]))
        for item in response["output"]:
            if item["type"] == "function_call":
                said.calls.append((item["name"], item["arguments"]))
                said.ids.append(item["call_id"])
            elif item["type"] == "reasoning":
                said.reasoning += item["content"][0]["text"]
            else:
                said.text += item["content"][0]["text"]
        return said


class Messages:
    """POST /v1/messages."""

    tools = MESSAGE_TOOLS
    required: Any = {"type": "any"}  # noqa: RUF012
    finishes = ("end_turn", "tool_use", "tool_use")

    @staticmethod
    def named(name: str) -> Any:
        return {"type": "tool", "name": name}

    def ask(self, server: Server, **fields: Any) -> Said:
        answer = server.post("/v1/messages", model="wheel", messages=USER, max_tokens=2000, **fields)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        said = Said("", [], body["stop_reason"], [], "", tuple(block["type"] for block in body["content"]))
        for block in body["content"]:
            if block["type"] == "tool_use":
                said.calls.append((block["name"], json.dumps(block["input"])))
                said.ids.append(block["id"])
            elif block["type"] == "thinking":
                assert block["signature"]
                said.reasoning += block["thinking"]
            else:
                said.text += block["text"]
        return said

    def stream(self, server: Server, **fields: Any) -> Said:
        answer = server.post(
            "/v1/messages", model="wheel", messages=USER, max_tokens=2000, stream=True, **fields
        )
        said, order, is_open = Said("", [], None, []), [], False
        for event in named_events(answer):
            if event["type"] == "content_block_start":
                assert not is_open
                assert event["index"] == len(order)
                is_open = True
                order.append(event["content_block"]["type"])
                if order[-1] == "tool_use":
                    assert event["content_block"]["input"] == {}
                    said.calls.append((event["content_block"]["name"], ""))
                    said.ids.append(event["content_block"]["id"])
            elif event["type"] == "content_block_delta":
                assert is_open
                assert event["index"] == len(order) - 1
                self._add(said, event["delta"])
            elif event["type"] == "content_block_stop":
                is_open = False
            elif event["type"] == "message_delta":
                said.finish = event["delta"]["stop_reason"]
        said.order = tuple(order)
        return said

    @staticmethod
    def _add(said: Said, delta: dict[str, Any]) -> None:
        said.text += delta.get("text", "")
        said.reasoning += delta.get("thinking", "")
        if "partial_json" in delta:
            name, arguments = said.calls[-1]
            said.calls[-1] = (name, arguments + delta["partial_json"])


PROTOCOLS = {"chat": Chat(), "responses": Responses(), "messages": Messages()}
