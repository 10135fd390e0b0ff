"""Calls that a model need not make, and that follow their tools' schemas once it begins one."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from noria.chats.tool_use import Choice, ToolUse
from noria.parsers.formats import ToolFormat
from noria.parsers.written import Node, calls_tree, free_tree
from noria.sampling.grammar import MAX_TEXT, Grammar
from noria.sampling.params import SamplingParams
from noria.sampling.structures import are_texts, tree_of

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
        return replace(params, grammar=_beside(calls_tree(*asked), params.grammar))
    if not any(tool.is_strict for tool in tools.tools):
        return params
    grammar = replace(_tag(free_tree(*asked), _FIELD), begins_not=form.strict.bare_head)
    return replace(params, grammar=grammar)


def _beside(calls: Node | None, form: Grammar) -> Grammar:
    """Calls or the form. The form alone where it cannot stand beside calls, and where it is at fault: whoever reads it
    says in its own words why.
    """
    if calls is None or len(form.text) > MAX_TEXT:
        return form
    try:
        return _tag({"type": "or", "elements": [calls, _node_of(form)]}, form.field)
    except (ValueError, RecursionError):
        return form


def _tag(tree: Node, field: str) -> Grammar:
    return Grammar("structural_tag", json.dumps({"format": tree}), field)


def _node_of(form: Grammar) -> Any:
    """A form as a part of a structural tag. Raises ValueError and RecursionError for one that cannot be read."""
    if form.kind == "structural_tag":
        return tree_of(form.text)
    if form.kind == "choice":
        choices = json.loads(form.text)
        if not choices or not are_texts(choices):
            raise ValueError("choices are a list of at least one string")
        return {"type": "or", "elements": [{"type": "const_string", "value": one} for one in choices]}
    if form.kind == "json_schema":
        return {"type": "json_schema", "json_schema": json.loads(form.text)}
    return {
        "json_object": {"type": "json_schema", "json_schema": {"type": "object"}},
        "regex": {"type": "regex", "pattern": form.text},
        "lark": {"type": "grammar", "grammar": form.text},
    }[form.kind]
