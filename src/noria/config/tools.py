"""What a user may ask of tool calls and reasoning in answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from noria.config.option import AUTO, PATH, SWITCH, check_values, option


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """How tool calls and reasoning are found in what a model writes."""

    TITLE: ClassVar[str] = "Tools and reasoning"

    enable_auto_tool_choice: bool = option(
        True,
        "Let the model decide for itself whether it calls a tool. Without it, requests with tools must have a "
        "tool_choice of none, of required, or of a certain tool.",
        SWITCH,
    )
    tool_call_parser: str = option(
        AUTO,
        "How the model writes calls: hermes, qwen3_coder, llama3_json, llama4_pythonic, mistral, deepseek_v3, ... (all "
        "are in docs/tools.md), a format of a plugin or an installed package, response_template, none, or auto: what "
        "the checkpoint's response_template says if there is one, else its chat template.",
    )
    reasoning_parser: str = option(
        AUTO,
        "How the model sets off its reasoning: deepseek_r1, qwen3, granite, mistral, ..., response_template, none, or "
        "auto: what the checkpoint's response_template says if there is one, else its chat template.",
    )
    tool_parser_plugin: str | None = option(
        None,
        "Python file with formats of its own, TOOL_FORMATS. It is run at start.",
        PATH,
        default_words="none",
    )
    reasoning_field_name: str = option(
        "both",
        "What replies of chat completions call reasoning. Some clients know only one name.",
        choices=("reasoning", "reasoning_content", "both"),
    )

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def reasoning_fields(self) -> tuple[str, ...]:
        both = ("reasoning", "reasoning_content")
        return both if self.reasoning_field_name == "both" else (self.reasoning_field_name,)
