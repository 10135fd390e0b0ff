"""Answers with tool calls in every format, and what they say: the same cases for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from noria.parsers.formats import TOOL_FORMATS
from noria.parsers.parts import CallArguments, CallBegin, Part, joined
from noria.parsers.sink import CallSink
from noria.parsers.tool_calls import ToolCallReader

TOOLS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "filter": {"type": "object"}},
    },
    "now": {"type": "object", "properties": {}},
}
Calls = list[tuple[str, dict[str, Any]]]
Write = Callable[[Calls], str]


def _json(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _objects(calls: Calls, key: str = "arguments") -> list[str]:
    return [f'{{"name": "{name}", "{key}": {_json(arguments)}}}' for name, arguments in calls]


def _each(begin: str, end: str, between: str = "\n", key: str = "arguments") -> Write:
    return lambda calls: between.join(f"{begin}{text}{end}" for text in _objects(calls, key))


def _list(begin: str, end: str = "", key: str = "arguments") -> Write:
    return lambda calls: f"{begin}[{', '.join(_objects(calls, key))}]{end}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _tagged(outer: str, opening: str, parameter: str, closing: str) -> Write:
    def write(calls: Calls) -> str:
        texts = []
        for name, arguments in calls:
            tags = "".join(
                f"{parameter.format(key)}{_value(value)}</parameter>\n" for key, value in arguments.items()
            )
            texts.append(f"<{outer}>\n{opening.format(name)}\n{tags}{closing}\n</{outer}>")
        return "\n".join(texts)

    return write


def _glm(calls: Calls) -> str:
    return "\n".join(
        f"<tool_call>{name}\n"
        + "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{_value(value)}</arg_value>\n"
            for key, value in arguments.items()
        )
        + "</tool_call>"
        for name, arguments in calls
    )


def _named(section: tuple[str, str], begin: str, behind: str, end: str) -> Write:
    return lambda calls: (
        section[0]
        + "".join(f"{begin.format(name=name)}{behind}{_json(arguments)}{end}" for name, arguments in calls)
        + section[1]
    )


def _python(calls: Calls) -> list[str]:
    return [
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in calls
    ]


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
WRITERS: dict[str, Write] = {
    "qwen3_coder": _tagged("tool_call", "<function={}>", "<parameter={}>\n", "</function>"),
    "glm45": _glm,
    "minimax_m2": _tagged("minimax:tool_call", '<invoke name="{}">', '<parameter name="{}">', "</invoke>"),
    "seed_oss": _tagged("seed:tool_call", "<function={}>", "<parameter={}>", "</function>"),
    "deepseek_v3": _named(
        _DEEPSEEK,
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}",
        "\n```json\n",
        "\n```<｜tool▁call▁end｜>",
    ),
    "deepseek_v31": _named(
        _DEEPSEEK,
        "<｜tool▁call▁begin｜>{name}",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
    ),
    "kimi_k2": _named(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        "<|tool_call_begin|>functions.{name}:0",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
    "mistral": _list("[TOOL_CALLS]"),
    "lfm2": lambda calls: f"<|tool_call_start|>[{', '.join(_python(calls))}]<|tool_call_end|>",
    "granite": _list("<|tool_call|>"),
    "jamba": _list("<tool_calls>", "</tool_calls>"),
    "phi4_mini_json": _list("functools"),
    "internlm": _each("<|action_start|><|plugin|>\n", "<|action_end|>", key="parameters"),
    "olmo3": lambda calls: "<function_calls>\n" + "\n".join(_python(calls)) + "\n</function_calls>",
    "llama4_pythonic": lambda calls: f"[{', '.join(_python(calls))}]",
    "llama3_json": lambda calls: "; ".join(_objects(calls, "parameters")),
    "hermes": _each("<tool_call>\n", "\n</tool_call>"),
    "xlam": _list(""),
}
# What begins an answer without a marker can have no words before it.
BARE = [name for name, form in TOOL_FORMATS.items() if form.bare]

CALLS: dict[str, Calls] = {
    "one": [("get_weather", {"city": "Paris", "days": 3})],
    "two": [("get_weather", {"city": "Paris"}), ("now", {})],
    "the same twice": [("now", {}), ("now", {})],
    "nested braces": [("get_weather", {"filter": {"a": {"b": [1, {"c": "}"}]}, "d": "{["}})],
    "escaped quotes": [("get_weather", {"city": 'the "city" of \\light\\'})],
    "not ASCII": [("get_weather", {"city": "Zürich 東京 🌧"})],
    "no arguments": [("now", {})],
    "a line break": [("get_weather", {"city": "Paris\nTexas"})],
    "markup in an argument": [("get_weather", {"city": "</tool> <b> ```"})],
    "an empty text": [("get_weather", {"city": "", "days": 0})],
}


@dataclass(frozen=True)
class Case:
    format: str
    text: str
    calls: Calls
    content: str


def cases() -> dict[str, Case]:
    """Well-formed answers of every format."""
    made = {}
    for name, write in WRITERS.items():
        for title, calls in CALLS.items():
            made[f"{name}: {title}"] = Case(name, write(calls), calls, "")
        if name not in BARE:
            calls = CALLS["two"]
            made[f"{name}: words before"] = Case(
                name, "I shall look.\n" + write(calls), calls, "I shall look."
            )
            made[f"{name}: words behind"] = Case(name, write(calls) + "\nDone {x}", calls, "Done {x}")
    return made


def read(name: str, pieces: list[str], max_calls: int | None = None) -> tuple[Part, ...]:
    """All parts of a text that comes in these pieces, in the format of that name."""
    sink = CallSink(TOOLS, lambda index, tool: f"{tool}#{index}", max_calls)
    reader = ToolCallReader(TOOL_FORMATS[name], sink)
    parts: list[Part] = []
    for piece in pieces:
        parts += reader.feed(piece)
    return joined(parts + reader.finish())


def calls_of(parts: tuple[Part, ...]) -> Calls:
    """The calls with their arguments parsed, once their indices and ids are seen to be right."""
    begins = [part for part in parts if isinstance(part, CallBegin)]
    assert [begin.index for begin in begins] == list(range(len(begins)))
    assert [begin.id for begin in begins] == [f"{begin.name}#{begin.index}" for begin in begins]
    return [(begin.name, json.loads(arguments_of(parts, begin.index))) for begin in begins]


def arguments_of(parts: tuple[Part, ...], index: int) -> str:
    return "".join(p.text for p in parts if isinstance(p, CallArguments) and p.index == index)
