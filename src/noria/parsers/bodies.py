"""How the formats write a call between their markers, a reader for each way of writing.

A reader begins behind the marker that opens a call and ends behind the last call that it reads; what it took beyond
stays unclaimed. It raises NotACall where it can read no call, or no more of one that has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from noria.parsers.json_steps import read_arguments, read_text, read_value
from noria.parsers.sink import CallSink
from noria.parsers.steps import Cursor, NotACall, Steps

Body = Callable[[Cursor, CallSink], Steps[None]]

_NAME_KEYS = ("name",)
_ARGUMENT_KEYS = ("arguments", "parameters")
_WRAPPER_KEY = "function"  # {"type": "function", "function": {"name": ..., "arguments": ...}}
_SEPARATORS = ",;"


def json_calls(cursor: Cursor, sink: CallSink) -> Steps[None]:
    """{"name": ..., "arguments": {...}}, or several: in a list, or one after another."""
    while True:
        first = yield from cursor.skip_space()
        if first == "[":
            yield from _json_list(cursor, sink)
        else:
            yield from _json_object(cursor, sink)
        after = yield from cursor.skip_space()
        if after and after in _SEPARATORS:
            yield from cursor.take()
            after = yield from cursor.skip_space()
        if after != "{":
            return


def _json_list(cursor: Cursor, sink: CallSink) -> Steps[None]:
    yield from cursor.expect("[")
    while True:
        yield from cursor.skip_space()
        yield from _json_object(cursor, sink)
        if (yield from cursor.skip_space()) == "]":
            break
        yield from cursor.expect(",")
    yield from cursor.take()
    cursor.claim()


def _json_object(cursor: Cursor, sink: CallSink) -> Steps[None]:
    call = _JsonCall(cursor, sink)
    yield from call.read()
    call.end()


class _JsonCall:
    """One call, whatever the order of its members."""

    def __init__(self, cursor: Cursor, sink: CallSink) -> None:
        self._cursor = cursor
        self._sink = sink
        self._has_begun = False
        self._early: list[str] | None = None  # arguments that came before the name
        self._has_arguments = False

    def read(self) -> Steps[None]:
        cursor = self._cursor
        yield from cursor.expect("{")
        if (yield from cursor.skip_space()) == "}":
            raise NotACall
        while True:
            yield from cursor.skip_space()
            key = yield from read_text(cursor)
            yield from cursor.skip_space()
            yield from cursor.expect(":")
            first = yield from cursor.skip_space()
            yield from self._member(key, first)
            if (yield from cursor.skip_space()) == "}":
                yield from cursor.take()
                return
            yield from cursor.expect(",")

    def _member(self, key: str, first: str) -> Steps[None]:
        is_wrapper = key == _WRAPPER_KEY and first == "{"
        if is_wrapper:
            yield from self.read()
        elif (key in _NAME_KEYS or (key == _WRAPPER_KEY and first == '"')) and not self._has_begun:
            self._begin((yield from read_text(self._cursor)))
        elif key in _ARGUMENT_KEYS and not self._has_arguments:
            self._has_arguments = True
            yield from read_arguments(self._cursor, self._tell)
        else:
            yield from read_value(self._cursor, lambda _: None)

    def end(self) -> None:
        if not self._has_begun:
            raise NotACall
        if not self._has_arguments:
            self._sink.tell("{}")
        self._cursor.end_call()

    def _begin(self, name: str) -> None:
        self._sink.begin(self._cursor, name)
        self._has_begun = True
        for text in self._early or ():
            self._sink.tell(text)

    def _tell(self, text: str) -> None:
        if self._has_begun:
            self._sink.tell(text)
        else:
            self._early = [*(self._early or ()), text]


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A name, then its arguments as JSON, which may stand in a fence of Markdown.

    before: what stands before the name. behind: what stands between the two, if anything does.
    name_of: the tool's name from what stands for it.
    """

    behind: tuple[str, ...] = ()
    before: str = ""
    name_of: Callable[[str], str] = str.strip

    def __call__(self, cursor: Cursor, sink: CallSink) -> Steps[None]:
        yield from cursor.skip_space()
        yield from cursor.expect(self.before)
        name = ""
        while (yield from cursor.peek()) not in ("{", "") and not name.endswith(self.behind):
            name += yield from cursor.take()
        for end in self.behind:
            name = name.removesuffix(end)
        sink.begin(cursor, self.name_of(name))
        if (yield from cursor.skip_space()) == "`":
            yield from cursor.until(("\n",))
        yield from read_arguments(cursor, sink.tell)
        cursor.end_call()


_NAMED = NamedCall(behind=("[ARGS]",))


def listed_or_named_calls(cursor: Cursor, sink: CallSink) -> Steps[None]:
    """Mistral's older models write a list of JSON objects, the newer ones a name and its arguments."""
    first = yield from cursor.skip_space()
    yield from (json_calls if first and first in "[{" else _NAMED)(cursor, sink)
