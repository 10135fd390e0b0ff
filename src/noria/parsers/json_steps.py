"""Reading JSON a character at a time, as leniently as models write it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from noria.parsers.steps import SPACE, Cursor, NotACall, Steps

_AFTER_SCALAR = ",}]" + SPACE


def read_string(cursor: Cursor, tell: Callable[[str], None]) -> Steps[None]:
    """A string from its quotation mark on, told as it is written, marks included."""
    tell((yield from cursor.take()))
    while True:
        character = yield from cursor.take()
        tell(character)
        if character == '"':
            return
        if character == "\\":
            tell((yield from cursor.take()))


def read_value(cursor: Cursor, tell: Callable[[str], None]) -> Steps[None]:
    """Any value, told as it is written. Brackets must match in number only: a parser that wants more comes later."""
    first = yield from cursor.peek()
    if first == '"':
        yield from read_string(cursor, tell)
    elif first and first in "{[":
        yield from _read_nested(cursor, tell)
    else:
        while (character := (yield from cursor.peek())) and character not in _AFTER_SCALAR:
            tell((yield from cursor.take()))


def _read_nested(cursor: Cursor, tell: Callable[[str], None]) -> Steps[None]:
    depth = 0
    while True:
        if (yield from cursor.peek()) == '"':
            yield from read_string(cursor, tell)
            continue
        character = yield from cursor.take()
        tell(character)
        depth += (character in "{[") - (character in "}]")
        if depth == 0:
            return


def read_text(cursor: Cursor) -> Steps[str]:
    """A string's value. Raises NotACall for what is none."""
    if (yield from cursor.peek()) != '"':
        raise NotACall
    written: list[str] = []
    yield from read_string(cursor, written.append)
    try:
        return str(json.loads("".join(written)))
    except ValueError:
        raise NotACall from None


def read_arguments(cursor: Cursor, tell: Callable[[str], None]) -> Steps[None]:
    """A call's arguments, told as the JSON text of an object.

    An object is told as it comes. A string is taken for the object's text, as some models write it; nothing at all,
    null and an empty string are an empty object.
    """
    first = yield from cursor.skip_space()
    if first and first in "{[":
        yield from read_value(cursor, tell)
        return
    written: list[str] = []
    yield from read_value(cursor, written.append)
    text = "".join(written)
    if text.startswith('"'):
        with suppress(ValueError):  # what is not JSON the client will see as the model wrote it
            text = str(json.loads(text))
    tell("{}" if text in ("", "null") else text)
