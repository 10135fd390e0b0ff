"""Custom tools: their input is a text, free or in the words of a grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noria.config.errors import RequestError
from noria.parsers.custom import INPUT
from noria.parsers.forced import required_schema
from noria.parsers.written import Node
from noria.sampling.grammar import Grammar

_SYNTAXES = ("lark", "regex")
_FIELD = "tools"


@dataclass(frozen=True, slots=True)
class CustomInput:
    """syntax: lark or regex, of the definition; text where it is free."""

    syntax: str = "text"
    definition: str = ""

    @property
    def grammar(self) -> Grammar | None:
        """Of an answer that is an input and nothing else."""
        return None if self.syntax == "text" else Grammar(self.syntax, self.definition, _FIELD)

    @property
    def node(self) -> Node:
        """The same as a part of a structural tag."""
        if self.syntax == "text":
            return {"type": "any_text"}
        if self.syntax == "regex":
            return {"type": "regex", "pattern": self.definition}
        return {"type": "grammar", "grammar": self.definition}


def input_of(stated: Any, where: str) -> CustomInput:
    """The `format` of a custom tool: {"type": "text"}, or {"type": "grammar"} with syntax and definition, which Chat
    Completions put into an object of its own. Raises RequestError.
    """
    if stated is None:
        return CustomInput()
    kind = stated.get("type") if isinstance(stated, Mapping) else None
    if kind == "text":
        return CustomInput()
    if kind != "grammar":
        raise RequestError(f"{where}.type must be text or grammar", _FIELD)
    held = stated.get("grammar", stated)
    syntax = held.get("syntax") if isinstance(held, Mapping) else None
    if syntax not in _SYNTAXES:
        raise RequestError(f"{where} needs a syntax, which is {' or '.join(_SYNTAXES)}", _FIELD)
    if not isinstance(held.get("definition"), str) or not held["definition"]:
        raise RequestError(f"{where} needs a definition, a string", _FIELD)
    return CustomInput(syntax, held["definition"])


def parameters_of(asked: CustomInput) -> dict[str, Any]:
    """The schema of the arguments by which models are told of a custom tool."""
    told = {"type": "string"}
    if asked.syntax == "regex":
        told["pattern"] = f"^(?:{asked.definition})$"
    elif asked.syntax == "lark":
        told["description"] = f"A text in the language of this Lark grammar:\n{asked.definition}"
    return {"type": "object", "properties": {INPUT: told}, "required": [INPUT], "additionalProperties": False}


def arguments_of(text: str) -> str:
    """The arguments, JSON text, by which models are told of an earlier input."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def head_of(name: str) -> str:
    """What stands before a forced input where an answer may call other tools too."""
    return f"call {name}:\n"


def required_tree(
    functions: Mapping[str, Mapping[str, Any]], customs: Mapping[str, CustomInput], is_parallel: bool
) -> Grammar:
    """An answer that is calls of functions, or one call of a custom tool, which goes on to its end."""
    choices: list[Node] = []
    if functions:
        schema = json.loads(required_schema(functions, is_parallel))
        choices.append({"type": "json_schema", "json_schema": schema})
    for name, asked in customs.items():
        head = {"type": "const_string", "value": head_of(name)}
        choices.append({"type": "sequence", "elements": [head, asked.node]})
    return Grammar("structural_tag", json.dumps({"format": {"type": "or", "elements": choices}}), _FIELD)
