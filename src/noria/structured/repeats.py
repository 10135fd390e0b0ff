"""Refuses at sight what would be followed copy by copy: a part of a regular expression that may repeat too often.

The expressions alone are looked at, not the text that an output is to have: `{200000}` says nothing in a choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from noria.structured.faults import GrammarFault

MAX_REPEATS = 100_000
_MAX_DIGITS = 18  # more say no more
_REPEATS = re.compile(r"\{(\d+)(?:,(\d*))?\}")

# Members of a schema: values as they are, schemas by name, and an expression. All other members may hold schemas.
_PLAIN = frozenset(("const", "enum", "default", "examples"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_PATTERN = "pattern"
_BY_PATTERN = "patternProperties"
_SETTINGS = "x-guidance"  # some of which are expressions

# A Lark grammar's parts without counts; expressions, which may hold all that begins another part; schemas.
_LARK = re.compile(
    r'"(?:\\.|[^"\\\n])*"|(?://|\#)[^\n]*|(?P<expression>/(?:\\.|[^/\\])+/)|%json\s*(?P<schema>)', re.DOTALL
)


def check_regex(text: str) -> None:
    """Raises GrammarFault, as all of these do."""
    for counts in _REPEATS.findall(text):
        most = max(int(count[:_MAX_DIGITS]) for count in counts if count)
        if most > MAX_REPEATS:
            raise GrammarFault(f"something in it may repeat {most} times; at most {MAX_REPEATS} are followed")


def check_schema(schema: Any) -> None:
    """schema: JSON, read."""
    for expression in _expressions(schema):
        check_regex(expression)


def check_lark(text: str) -> None:
    """Counts behind names of rules, too."""
    place = 0
    while part := _LARK.search(text, place):
        check_regex(text[place : part.start()])
        place = part.end()
        if part["expression"] is not None:
            check_regex(part["expression"])
        elif part["schema"] is not None:
            schema, place = _schema_at(text, place)
            check_schema(schema)
    check_regex(text[place:])


def is_ebnf(text: str) -> bool:
    """By how a rule is written there; within a text, an expression or a comment of Lark that says nothing."""
    return "::=" in _LARK.sub("", text)


def _schema_at(text: str, place: int) -> tuple[Any, int]:
    """And where it ends. Whoever compiles the grammar says what is wrong with one that is none."""
    try:
        return json.JSONDecoder().raw_decode(text, place)
    except json.JSONDecodeError:
        return None, place


def _expressions(schema: Any) -> Iterator[str]:
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        if not isinstance(one, dict):
            continue
        if isinstance(pattern := one.get(_PATTERN), str):
            yield pattern
        for name in (_BY_PATTERN, _SETTINGS):
            if isinstance(found := one.get(name), dict):
                yield from found if name == _BY_PATTERN else map(str, found.values())
        for name, value in one.items():
            if name in _NAMED and isinstance(value, dict):
                left += value.values()
            elif name not in _PLAIN:
                left.append(value)
