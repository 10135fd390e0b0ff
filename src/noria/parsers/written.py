"""How a grammar has a model write calls in its format: trees of formats, as structural tags have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noria.parsers.forced import named_schema

Node = dict[str, Any]

_SPACE = r"[ \t\r\n]{0,20}"
_ANY_ARGUMENTS: Node = {"type": "object", "additionalProperties": True}
# How an answer begins that is calls in JSON without a marker, whatever the order of their members.
_HEAD = r'\{[ \t\r\n]*"(name|arguments|parameters|function|type"[ \t\r\n]*:[ \t\r\n]*"function)"'


@dataclass(frozen=True, slots=True)
class Expression:
    """Text that a regular expression describes."""

    pattern: str


Piece = str | Expression
StrictTools = Mapping[str, Mapping[str, Any] | None]  # by name, the schema of the arguments; None: any object


@dataclass(frozen=True, slots=True)
class Written:
    """Pieces around a call's name and its arguments, which are JSON.

    before, between, behind: around the two. is_quoted: the name is written as in a JSON string.
    again: instead of `before`, for a call that follows another; none where there is one. closing: behind all.
    """

    before: tuple[Piece, ...] = ()
    between: tuple[Piece, ...] = ()
    behind: tuple[Piece, ...] = ()
    is_quoted: bool = False
    again: tuple[Piece, ...] = ()
    closing: tuple[Piece, ...] = ()

    def calls(self, tools: StrictTools, is_parallel: bool) -> Node:
        names = {"type": "or", "elements": [self._called(*tool) for tool in tools.items()]}
        call = _sequence(names, *map(_node, self.behind))
        if self.again:
            call = {
                "type": "tags_with_separator",
                "tags": [{"type": "tag", "begin": "", "content": call, "end": ""}],
                "separator": _sequence(*map(_node, self.again)),
                "at_least_one": True,
                "stop_after_first": not is_parallel,
            }
        return _sequence(*map(_node, self.before), call, *map(_node, self.closing))

    def _called(self, name: str, parameters: Mapping[str, Any] | None) -> Node:
        written = json.dumps(name, ensure_ascii=False)[1:-1] if self.is_quoted else name
        schema = json.loads(named_schema(_ANY_ARGUMENTS if parameters is None else parameters))
        arguments = {"type": "json_schema", "json_schema": schema}
        return _sequence(_node(written), *map(_node, self.between), arguments)


def in_json(key: str, is_listed: bool = False, separator: str = ",", end: str = "") -> Written:
    """{"name": ..., key: {...}}, or a list of those. separator: between several. end: the marker behind all.

    What an answer may begin with is one expression: a part of it would be free text as well.
    """
    head = rf'{_SPACE}\{{{_SPACE}"name"{_SPACE}:{_SPACE}"'
    return Written(
        before=(Expression(rf"{_SPACE}\[{head}" if is_listed else head),),
        between=(Expression(rf'"{_SPACE},{_SPACE}"{key}"{_SPACE}:{_SPACE}'),),
        behind=(Expression(rf"{_SPACE}\}}"),),
        is_quoted=True,
        again=(Expression(rf"{_SPACE}{separator}{head}"),) if separator else (),
        closing=(*((Expression(rf"{_SPACE}\]"),) if is_listed else ()), *_ending(end)),
    )


def _ending(end: str) -> tuple[Piece, ...]:
    return (Expression(_SPACE), end) if end else ()


def head_of_json(is_listed: bool = False) -> str:
    """What an answer must not begin with where it is no call, as an expression."""
    return rf"[ \t\r\n]*{_LIST if is_listed else ''}{_HEAD}"


_LIST = r"\[[ \t\r\n]*"


@dataclass(frozen=True, slots=True)
class Strict:
    """ways: in which calls stand behind a begin marker; the model chooses. bare: how they stand without a marker,
    where an answer may begin so, and bare_head, what such an answer begins with.
    """

    ways: tuple[Written, ...]
    bare: Written | None = None
    bare_head: str = ""


def free_tree(
    strict: Strict, begins: tuple[str, ...], silent: tuple[str, ...], tools: StrictTools, is_parallel: bool
) -> Node:
    """An answer of any text, in which a marker begins calls that are as they must be. Where calls may stand without a
    marker, whoever reads it sees to it that no text begins as they do: with strict.bare_head.

    silent: markers that mean nothing by themselves.
    """
    calls = _one_of([way.calls(tools, is_parallel) for way in strict.ways])
    nothing = {"type": "const_string", "value": ""}
    rules = [[marker, calls] for marker in begins] + [[marker, nothing] for marker in silent]
    text: Node = {"type": "dispatch", "rules": rules} if rules else {"type": "any_text"}
    if strict.bare is None:
        return text
    return _one_of([strict.bare.calls(tools, is_parallel), text])


def calls_tree(
    strict: Strict, begins: tuple[str, ...], silent: tuple[str, ...], tools: StrictTools, is_parallel: bool
) -> Node | None:
    """An answer of nothing but calls behind markers. None where they may stand without one."""
    if strict.bare is not None or not begins:
        return None
    calls = _one_of([way.calls(tools, is_parallel) for way in strict.ways])
    one = _sequence(_one_of([_node(begin) for begin in begins]), calls)
    gap: list[Node] = [_node(Expression(_SPACE))]
    if silent:
        gap.append({"type": "star", "content": _sequence(_one_of([_node(one) for one in silent]), *gap)})
    again = [{"type": "star", "content": _sequence(*gap, one)}] if is_parallel else []
    return _sequence(*gap, one, *again, *gap)


def _sequence(*parts: Node) -> Node:
    return parts[0] if len(parts) == 1 else {"type": "sequence", "elements": list(parts)}


def _one_of(choices: list[Node]) -> Node:
    return choices[0] if len(choices) == 1 else {"type": "or", "elements": choices}


def _node(piece: Piece) -> Node:
    if isinstance(piece, Expression):
        return {"type": "regex", "pattern": piece.pattern}
    return {"type": "const_string", "value": piece}
