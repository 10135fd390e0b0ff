"""Calls written as Python writes them: [f(x=1, y="a"), g()]."""

from __future__ import annotations

import json
from dataclasses import dataclass

from noria.parsers.literals import json_of
from noria.parsers.sink import CallSink
from noria.parsers.steps import Cursor, NotACall, Steps

_QUOTES = "\"'"


@dataclass(frozen=True, slots=True)
class PythonicCalls:
    """is_listed: the calls stand in brackets, with commas between them; else one after another."""

    is_listed: bool = True

    def __call__(self, cursor: Cursor, sink: CallSink) -> Steps[None]:
        yield from cursor.skip_space()
        if self.is_listed:
            yield from cursor.expect("[")
        while True:
            yield from cursor.skip_space()
            yield from _read_call(cursor, sink)
            after = yield from cursor.skip_space()
            if self.is_listed:
                if after == "]":
                    break
                yield from cursor.expect(",")
            elif not _is_of_name(after):
                return
        yield from cursor.take()
        cursor.claim()


def _read_call(cursor: Cursor, sink: CallSink) -> Steps[None]:
    name = yield from _read_name(cursor)
    yield from cursor.expect("(")
    sink.begin(cursor, name)
    separator = "{"
    while (yield from cursor.skip_space()) != ")":
        if separator != "{":
            yield from cursor.expect(",")
            if (yield from cursor.skip_space()) == ")":
                break
        key = yield from _read_name(cursor)
        yield from cursor.skip_space()
        yield from cursor.expect("=")
        yield from cursor.skip_space()
        value = yield from _read_expression(cursor)
        sink.tell(f"{separator}{json.dumps(key, ensure_ascii=False)}: {json_of(value.strip())}")
        separator = ", "
    yield from cursor.take()
    sink.tell("{}" if separator == "{" else "}")
    cursor.end_call()


def _read_name(cursor: Cursor) -> Steps[str]:
    name = ""
    while _is_of_name((yield from cursor.peek())):
        name += yield from cursor.take()
    if not name:
        raise NotACall
    return name


def _is_of_name(character: str) -> bool:
    return bool(character) and (character.isalnum() or character in "_.-")


def _read_expression(cursor: Cursor) -> Steps[str]:
    """What stands before the next comma or closing bracket of this level."""
    text, depth = "", 0
    while True:
        character = yield from cursor.peek()
        if depth == 0 and character in (",", ")"):
            return text
        if character and character in _QUOTES:
            text += yield from _read_quoted(cursor)
            continue
        text += yield from cursor.take()
        depth += (character in "([{") - (character in ")]}")


def _read_quoted(cursor: Cursor) -> Steps[str]:
    quote = yield from cursor.take()
    text = quote
    while True:
        character = yield from cursor.take()
        text += character
        if character == quote:
            return text
        if character == "\\":
            text += yield from cursor.take()
