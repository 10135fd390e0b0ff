"""The formats in which models write tool calls and reasoning: a row each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from noria.parsers.bodies import Body, NamedCall, json_calls, listed_or_named_calls
from noria.parsers.pythonic import PythonicCalls
from noria.parsers.tagged import TaggedCalls
from noria.parsers.written import Expression, Strict, Written, head_of_json, in_json


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a model writes calls.

    body: reads what stands behind a begin marker. begins: markers that open a call wherever they stand.
    ends: close what was opened. silent: stand around calls and say nothing by themselves. inner: stand within calls.
    bare: first characters of an answer that is calls without a marker before them.
    in_template: texts of which a chat template holds all, if its model writes this format.
    id_length: characters of a call's id, where the model's template wants so many letters and digits.
    strict: how a grammar has calls written; None where none can.
    """

    body: Body
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    bare: str = ""
    in_template: tuple[str, ...] = ()
    id_length: int | None = None
    strict: Strict | None = None

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self.begins, *self.ends, *self.silent, *self.inner)


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a model sets off what it writes for itself: the markers around it, and what a template holds then."""

    begin: str
    end: str
    in_template: tuple[str, ...] = ()


_QWEN_TAGS = TaggedCalls("<function=", ">", "<parameter=", ">", "</parameter>", "</function>")
_GLM_TAGS = TaggedCalls(
    "", "\n", "<arg_key>", "</arg_key>", "</arg_value>", "</tool_call>", value="<arg_value>"
)
_MINIMAX_TAGS = TaggedCalls("<invoke name=", ">", "<parameter name=", ">", "</parameter>", "</invoke>")
_KIMI_NAME = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")

_LISTED = in_json("arguments", is_listed=True)
_HERMES = ToolFormat(
    json_calls,
    ("<tool_call>",),
    ("</tool_call>",),
    in_template=("<tool_call>",),
    strict=Strict((in_json("arguments", separator="", end="</tool_call>"),)),
)
_QWEN3_CODER = ToolFormat(
    _QWEN_TAGS, ("<tool_call>",), ("</tool_call>",), in_template=("<function=", "<tool_call>")
)
_GLM = ToolFormat(_GLM_TAGS, ("<tool_call>",), in_template=("<arg_key>", "<tool_call>"))
_LLAMA_WRITTEN = in_json("parameters", separator=";")
_LLAMA_JSON = ToolFormat(
    json_calls,
    ("<|python_tag|>",),
    bare="{[",
    in_template=("<|python_tag|>", '"parameters"'),
    strict=Strict((_LLAMA_WRITTEN,), _LLAMA_WRITTEN, head_of_json()),
)
_PYTHONIC = ToolFormat(
    PythonicCalls(), ("<|python_start|>",), ("<|python_end|>",), bare="[", in_template=("<|python_start|>",)
)
_DEEPSEEK_SILENT = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_BEGIN = "<｜tool▁call▁begin｜>"
_DEEPSEEK_END = "<｜tool▁call▁end｜>"
_DEEPSEEK_SEP = "<｜tool▁sep｜>"
_DEEPSEEK_V3 = ToolFormat(
    NamedCall(before=f"function{_DEEPSEEK_SEP}", behind=("\n",)),
    (_DEEPSEEK_BEGIN,),
    (f"```{_DEEPSEEK_END}", _DEEPSEEK_END),
    _DEEPSEEK_SILENT,
    in_template=(_DEEPSEEK_SEP, "```json"),
    strict=Strict((Written((f"function{_DEEPSEEK_SEP}",), ("\n```json\n",), (f"\n```{_DEEPSEEK_END}",)),)),
)
_DEEPSEEK_V31 = ToolFormat(
    NamedCall(behind=(_DEEPSEEK_SEP,)),
    (_DEEPSEEK_BEGIN,),
    (_DEEPSEEK_END,),
    _DEEPSEEK_SILENT,
    in_template=(_DEEPSEEK_SEP,),
    strict=Strict((Written(between=(_DEEPSEEK_SEP,), behind=(_DEEPSEEK_END,)),)),
)
_KIMI = ToolFormat(
    NamedCall(
        behind=("<|tool_call_argument_begin|>",),
        name_of=lambda name: found[1] if (found := _KIMI_NAME.fullmatch(name.strip())) else name,
    ),
    ("<|tool_call_begin|>",),
    ("<|tool_call_end|>",),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    in_template=("<|tool_call_argument_begin|>",),
    strict=Strict(
        (
            Written(
                ("functions.",),
                (":", Expression("[0-9]{1,4}"), "<|tool_call_argument_begin|>"),
                ("<|tool_call_end|>",),
            ),
        )
    ),
)
_GRANITE = ToolFormat(
    json_calls, ("<|tool_call|>", "<tool_call>"), in_template=("<|tool_call|>",), strict=Strict((_LISTED,))
)
_LFM2 = ToolFormat(
    PythonicCalls(), ("<|tool_call_start|>",), ("<|tool_call_end|>",), in_template=("<|tool_call_start|>",)
)

# Where a template could be of several, the first row that it fits counts.
TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "qwen3_coder": _QWEN3_CODER,
    "glm45": _GLM,
    "minimax_m2": ToolFormat(
        _MINIMAX_TAGS,
        ("<minimax:tool_call>",),
        ("</minimax:tool_call>",),
        in_template=("<minimax:tool_call>",),
    ),
    "seed_oss": ToolFormat(
        _QWEN_TAGS, ("<seed:tool_call>",), ("</seed:tool_call>",), in_template=("<seed:tool_call>",)
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v31": _DEEPSEEK_V31,
    "kimi_k2": _KIMI,
    "mistral": ToolFormat(
        listed_or_named_calls,
        ("[TOOL_CALLS]",),
        inner=("[ARGS]",),
        in_template=("[TOOL_CALLS]",),
        id_length=9,
        strict=Strict((_LISTED, Written(between=("[ARGS]",)))),
    ),
    "lfm2": _LFM2,
    "granite": _GRANITE,
    "jamba": ToolFormat(
        json_calls,
        ("<tool_calls>",),
        ("</tool_calls>",),
        in_template=("<tool_calls>",),
        strict=Strict((in_json("arguments", is_listed=True, end="</tool_calls>"),)),
    ),
    "phi4_mini_json": ToolFormat(
        json_calls, ("functools",), in_template=("functools",), strict=Strict((_LISTED,))
    ),
    "internlm": ToolFormat(
        json_calls,
        ("<|action_start|><|plugin|>",),
        ("<|action_end|>",),
        in_template=("<|plugin|>",),
        strict=Strict((in_json("parameters", separator="", end="<|action_end|>"),)),
    ),
    "olmo3": ToolFormat(
        PythonicCalls(is_listed=False),
        ("<function_calls>",),
        ("</function_calls>",),
        in_template=("<function_calls>",),
    ),
    "llama4_pythonic": _PYTHONIC,
    "llama3_json": _LLAMA_JSON,
    "hermes": _HERMES,
    "xlam": ToolFormat(json_calls, bare="[{", strict=Strict((), _LISTED, head_of_json(is_listed=True))),
}
_SAME_TOOLS = {
    "qwen3_xml": "qwen3_coder", "qwen3_json": "hermes", "glm47": "glm45", "granite4": "hermes",
    "llama4_json": "llama3_json", "pythonic": "llama4_pythonic",
}  # fmt: skip

# An answer of nothing but calls that a grammar has written; see forced.required_schema.
REQUIRED_FORMAT = ToolFormat(json_calls, bare="[")

REASONING_FORMATS: Mapping[str, ReasoningFormat] = {
    "seed_oss": ReasoningFormat("<seed:think>", "</seed:think>", ("<seed:think>",)),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]", ("[THINK]",)),
    "granite": ReasoningFormat(
        "Here is my thought process:", "Here is my response:", ("Here is my thought process:",)
    ),
    "deepseek_r1": ReasoningFormat("<think>", "</think>", ("</think>",)),
}
_SAME_REASONING = dict.fromkeys(
    ("qwen3", "glm45", "deepseek_v3", "kimi_k2", "minimax_m2", "olmo3", "step3"), "deepseek_r1"
)

NAMES_OF_TOOLS: Mapping[str, str] = {**{name: name for name in TOOL_FORMATS}, **_SAME_TOOLS}
NAMES_OF_REASONING: Mapping[str, str] = {**{name: name for name in REASONING_FORMATS}, **_SAME_REASONING}
