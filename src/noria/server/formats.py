"""How the served model writes tool calls and reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noria.config.tools import ToolOptions
from noria.parsers.formats import ReasoningFormat, ToolFormat
from noria.parsers.registry import reasoning_format, tool_format
from noria.tokenize.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Formats:
    """None: nobody knows, and the model's text is left as it is.

    allows_auto: a choice among tools may be left to the model. special: ids of the markers that are special tokens.
    """

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    allows_auto: bool = True
    special: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, options: ToolOptions, tokenizer: Tokenizer) -> Formats:
        """Raises ConfigError for names that nobody knows."""
        tools = tool_format(options.tool_call_parser, tokenizer.tool_template, options.tool_parser_plugin)
        reasoning = reasoning_format(options.reasoning_parser, tokenizer.chat_template)
        markers = {
            *(tools.markers if tools else ()),
            *((reasoning.begin, reasoning.end) if reasoning else ()),
        }
        names = {tokenizer.token_text(token_id): token_id for token_id in tokenizer.special_ids}
        special = {marker: names[marker] for marker in markers & names.keys()}
        return cls(tools, reasoning, options.enable_auto_tool_choice, special)


UNKNOWN_FORMATS = Formats()
