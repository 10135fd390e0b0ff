"""Response templates of several kinds, and answers with what they say."""

from __future__ import annotations

from typing import Any

_FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_TAGS = r"<parameter=(?P<key>\w+)>\n?(?P<value>.*?)\n?</parameter>"
TEMPLATES: dict[str, dict[str, Any]] = {
    "json": {
        "version": 1,
        "defaults": {"role": "assistant"},
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "thinking": {"open": "<think>", "close": "</think>"},
            "tool_calls": {
                "open": "<tool_call>",
                "close": ["</tool_call>", "<|im_end|>"],
                "content": "json",
                "repeats": True,
                "transform": {
                    "type": "function",
                    "function": {"name": "{content.name}", "arguments": "{content.arguments}"},
                },
            },
            "content": {"close": "<|im_end|>"},
        },
    },
    "tags": {
        "start_anchor": ["assistant\n", "assistant"],
        "fields": {
            "tool_calls": {
                "open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
                "close_pattern": r"</function>\s*</tool_call>",
                "content": "xml-inline",
                "content_args": {"tag_pattern": _TAGS},
                "repeats": True,
                "transform": _FUNCTION,
            },
            "reasoning": {"open": "<think>", "close_pattern": r"</think>|(?=<tool_call>)"},
            "content": {},
        },
    },
    "channels": {
        "start_anchor": "<|start|>assistant",
        "fields": {
            "thinking": {
                "open": "<|channel|>analysis<|message|>",
                "close": ["<|end|>", "<|return|>"],
                "repeats": True,
                "join": "\n",
            },
            "content": {"open": "<|channel|>final<|message|>", "close": ["<|end|>", "<|return|>"]},
            "tool_calls": {
                "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\w+).*?<\|message\|>",
                "close": "<|call|>",
                "content": "json",
                "repeats": True,
                "transform": _FUNCTION,
            },
        },
    },
    "bare keys": {
        "start_anchor_pattern": r"<\|turn>model\n",
        "fields": {
            "thinking": {"open": "<|channel>thought\n", "close": "<channel|>"},
            "tool_calls": {
                "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
                "close": "<tool_call|>",
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
                "repeats": True,
                "transform": _FUNCTION,
            },
            "content": {"close": "<turn|>"},
        },
    },
    "python": {
        "start_anchor": "assistant",
        "fields": {
            "tool_calls": {
                "open": "<|tool_call_start|>",
                "close": "<|tool_call_end|>",
                "content": "python-call-list",
                "transform_each": True,
                "transform": {
                    "type": "function",
                    "function": {"name": "{name}", "arguments": "{arguments}"},
                },
            },
            "content": {},
        },
    },
    "lines": {
        "start_anchor": "assistant",
        "fields": {
            "tool_calls": {
                "open_pattern": r"@(?P<name>\w+)\n",
                "close": "@end",
                "content": "kv-lines",
                "content_args": {"kv_sep": "=", "value_parser": {"name": "text"}},
                "repeats": True,
                "transform": _FUNCTION,
            },
            "content": {},
        },
    },
}
PARIS = {"city": "Paris", "days": 3}
# (template, the end of the prompt, the answer, reasoning, content, calls)
ANSWERS: dict[str, tuple[str, str, str, str, str, list[tuple[str, dict[str, Any]]]]] = {
    "everything": (
        "json",
        "",
        '<think>\nHm, 2 < 3.\n</think>\n\nI look.\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris", "days": "3"}}\n</tool_call><|im_end|>',
        "Hm, 2 < 3.",
        "I look.",
        [("get_weather", PARIS)],
    ),
    "words alone": ("json", "", "  Zürich 東京 🌧 < 3\n", "", "Zürich 東京 🌧 < 3", []),
    "begun by the prompt": ("json", "<think>\n", "Hm </thin\n</think> Yes", "Hm </thin", "Yes", []),
    "no end": ("json", "<think>", "Hm, but", "Hm, but", "", []),
    "two calls, the last open": (
        "json",
        "",
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n<tool_call>{"name": "get_weather", '
        '"arguments": {"filter": {"a": "}"}}}',
        "",
        "",
        [("now", {}), ("get_weather", {"filter": {"a": "}"}})],
    ),
    "tags": (
        "tags",
        "<think>\n",
        "So.<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</parameter>\n<parameter=days>\n3.0\n"
        '</parameter>\n<parameter=filter>{"a": [1]}</parameter>\n</function>\n</tool_call>',
        "So.",
        "",
        [("get_weather", {"city": "42", "days": 3, "filter": {"a": [1]}})],
    ),
    "channels": (
        "channels",
        "",
        "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"days": 3}'
        "<|call|>",
        "One.\nTwo.",
        "",
        [("get_weather", {"days": 3})],
    ),
    "a final channel": (
        "channels",
        "<|channel|>",
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        "Hm",
        "Yes.",
        [],
    ),
    "bare keys": (
        "bare keys",
        "",
        '<|channel>thought\nHm<channel|><|tool_call>call:get_weather{city:<|"|>a "b", c:d<|"|>,days:3,filter:{'
        'x:<|"|>{y:<|"|>}}<tool_call|>',
        "Hm",
        "",
        [("get_weather", {"city": 'a "b", c:d', "days": 3, "filter": {"x": "{y:"}})],
    ),
    "python": (
        "python",
        "",
        "I look. <|tool_call_start|>[get_weather(city='Paris', days=3), now()]<|tool_call_end|>",
        "",
        "I look.",
        [("get_weather", PARIS), ("now", {})],
    ),
    "lines": (
        "lines",
        "",
        "@get_weather\n city = Paris\ndays=3\nnone\n@end",
        "",
        "",
        [("get_weather", PARIS)],
    ),
}
MALFORMED = {
    "no JSON": ("json", "So: <tool_call>get_weather(Paris)</tool_call> there"),
    "no end of JSON": ("json", '<tool_call>{"name": "now", "argum'),
    "a name that is no tool's": ("json", 'Hm \n<tool_call>{"name": "rm", "arguments": {}}</tool_call>\nso'),
    "no name": ("json", '<tool_call>{"arguments": {}}</tool_call>'),
    "a list": ("json", "<tool_call>[1]</tool_call>!"),
    "arguments that are a number": ("json", '<tool_call>{"name": "now", "arguments": 1}</tool_call>'),
    "not a number": ("json", '<tool_call>{"name": "now", "arguments": {"x": NaN}}</tool_call>'),
    "a part of a delimiter": ("json", "2 <tool_c"),
    "no pattern's match": ("tags", "Write <tool_call> <function="),
    "an unknown tag's tool": ("tags", "<tool_call><function=rm></function></tool_call>"),
    "no Python": ("python", "<|tool_call_start|>[now(] <|tool_call_end|>"),
    "more than Python": ("python", "<|tool_call_start|>[now()] x<|tool_call_end|>"),
}
ANCHORS = {
    "json": "<|im_start|>assistant\n",
    "channels": "<|start|>assistant",
    "bare keys": "<|turn>model\n",
}
