"""How the served model writes tool calls and reasoning."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from noria.config.tools import ToolOptions
from noria.parsers.formats import ReasoningFormat, ToolFormat
from noria.parsers.registry import AUTO, answer_template, reasoning_format, tool_format
from noria.parsers.template import ResponseTemplate
from noria.tokenize.tokenizer import Tokenizer

logger = logging.getLogger("noria.server")


@dataclass(frozen=True, slots=True)
class Formats:
    """None: nobody knows, and the model's text is left as it is.

    allows_auto: a choice among tools may be left to the model. special: ids of the markers that are special tokens.
    template: the checkpoint's own account, by which whole answers are read then. tools is None beside it, and
        reasoning is what it says of that, where two texts can say it.
    """

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    allows_auto: bool = True
    special: Mapping[str, int] = field(default_factory=dict)
    template: ResponseTemplate | None = None

    @classmethod
    def of(cls, options: ToolOptions, tokenizer: Tokenizer) -> Formats:
        """Raises ConfigError for names that nobody knows, and for a checkpoint's account that cannot be used."""
        parsers = options.tool_call_parser, options.reasoning_parser
        template = answer_template(*parsers, tokenizer.response_template, options.tool_parser_plugin)
        if template is not None:
            return cls._of_template(template, options, tokenizer)
        if AUTO in parsers and tokenizer.has_response_schema and tokenizer.response_template is None:
            logger.warning(
                "this checkpoint describes its answers by a response_schema, which reads whole texts and cannot be "
                "used here: the chat template tells the formats, or name them by --tool-call-parser and "
                "--reasoning-parser"
            )
        tools = tool_format(options.tool_call_parser, tokenizer.tool_template, options.tool_parser_plugin)
        reasoning = reasoning_format(options.reasoning_parser, tokenizer.chat_template)
        markers = {
            *(tools.markers if tools else ()),
            *((reasoning.begin, reasoning.end) if reasoning else ()),
        }
        names = _special_names(tokenizer)
        special = {marker: names[marker] for marker in markers & names.keys()}
        return cls(tools, reasoning, options.enable_auto_tool_choice, special)

    @classmethod
    def _of_template(cls, template: ResponseTemplate, options: ToolOptions, tokenizer: Tokenizer) -> Formats:
        markers = template.reasoning_markers
        names = _special_names(tokenizer)
        return cls(
            reasoning=ReasoningFormat(*markers) if markers is not None else None,
            allows_auto=options.enable_auto_tool_choice,
            special={name: token_id for name, token_id in names.items() if template.mentions(name)},
            template=template,
        )


def _special_names(tokenizer: Tokenizer) -> dict[str, int]:
    return {tokenizer.token_text(token_id): token_id for token_id in tokenizer.special_ids}


UNKNOWN_FORMATS = Formats()
