"""Calls that a model need not make, and that follow their tools' schemas once it begins one."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from noria.chats.tool_use import Choice, ToolUse
from noria.parsers.formats import ToolFormat
from noria.parsers.written import Node, calls_tree, free_tree
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams

logger = logging.getLogger("noria.server")

_FIELD = "tools"


def with_strict_calls(params: SamplingParams, tools: ToolUse, form: ToolFormat | None) -> SamplingParams:
    """What a chat samples that is free to call: with a form, calls or the form; else text with calls in it.

    form: how the model writes calls. What none of its grammars can have written is left to the model.
    """
    if tools.choice is not Choice.AUTO or not tools.tools:
        return params
    if form is None or form.strict is None:
        if any(tool.is_strict for tool in tools.tools):
            logger.info(
                "strict tools are not enforced: nothing here can hold calls in this format to a schema"
            )
        return params
    asked = (form.strict, form.begins, form.silent, tools.strict_schemas, tools.is_parallel)
    if params.grammar is not None:
        calls, own = calls_tree(*asked), _node_of(params.grammar)
        if calls is None or own is None:
            return params
        either = {"type": "or", "elements": [calls, own]}
        return replace(params, grammar=_tag(either, params.grammar.field))
    if not any(tool.is_strict for tool in tools.tools):
        return params
    grammar = replace(_tag(free_tree(*asked), _FIELD), begins_not=form.strict.bare_head)
    return replace(params, grammar=grammar)


def _tag(tree: Node, field: str) -> Grammar:
    return Grammar("structural_tag", json.dumps({"format": tree}), field)


def _node_of(grammar: Grammar) -> Node | None:
    """A form as a part of a structural tag. None for one that cannot be such a part, or be read at all."""
    text: Any = grammar.text
    if grammar.kind in ("json_schema", "choice", "structural_tag"):
        try:
            text = json.loads(text)
        except (ValueError, RecursionError):
            return None
    if grammar.kind == "structural_tag":
        return text.get("format") if isinstance(text, dict) else None
    if grammar.kind == "choice":
        choices = [{"type": "const_string", "value": one} for one in text] if isinstance(text, list) else []
        return {"type": "or", "elements": choices}
    return {
        "json_schema": {"type": "json_schema", "json_schema": text},
        "json_object": {"type": "json_schema", "json_schema": {"type": "object"}},
        "regex": {"type": "regex", "pattern": text},
        "lark": {"type": "grammar", "grammar": text},
    }[grammar.kind]
