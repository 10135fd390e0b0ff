"""Calls with a tag for each argument, as in <function=f><parameter=x>1</parameter></function>."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noria.parsers.literals import json_of
from noria.parsers.sink import CallSink
from noria.parsers.steps import Cursor, Steps


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """The tags of a format.

    opening, name_end: around the tool's name. closing: behind the last argument.
    key, key_end, value_end: around an argument's name and value. value: what may stand between the two.
    """

    opening: str
    name_end: str
    key: str
    key_end: str
    value_end: str
    closing: str
    value: str = ""

    def __call__(self, cursor: Cursor, sink: CallSink) -> Steps[None]:
        while True:
            yield from cursor.skip_space()
            yield from cursor.expect(self.opening)
            yield from self._call(cursor, sink)
            cursor.end_call()
            if not self.opening or (yield from cursor.skip_space()) != self.opening[0]:
                return

    def _call(self, cursor: Cursor, sink: CallSink) -> Steps[None]:
        name, found = yield from cursor.until((self.name_end, self.closing))
        schema = sink.begin(cursor, name.strip().strip('"'))
        separator = "{"
        while found != self.closing:
            # What else stands between arguments is of no use to anybody.
            _, found = yield from cursor.until((self.key, self.closing))
            if found == self.closing:
                break
            name, _ = yield from cursor.until((self.key_end,))
            name = name.strip().strip('"')
            if self.value:
                yield from cursor.until((self.value,))
            sink.tell(f"{separator}{json.dumps(name, ensure_ascii=False)}: ")
            yield from self._value(cursor, sink, name, schema)
            separator = ", "
        sink.tell("{}" if separator == "{" else "}")

    def _value(self, cursor: Cursor, sink: CallSink, name: str, schema: Mapping[str, Any]) -> Steps[None]:
        if is_text(schema, name):
            text = _QuotedText(sink)
            yield from cursor.until((self.value_end,), text.tell)
            text.end()
            return
        written, _ = yield from cursor.until((self.value_end,))
        sink.tell(json_of(written.strip()))


class _QuotedText:
    """A text as it comes, told as a JSON string. The line breaks that set it off from its tags are not its own."""

    def __init__(self, sink: CallSink) -> None:
        self._sink = sink
        self._held = ""  # a line break that may be the last one
        self._is_first = True
        sink.tell('"')

    def tell(self, text: str) -> None:
        if not text:
            return
        text = self._held + text
        if self._is_first:
            text = text.removeprefix("\n")
            self._is_first = False
        self._held = "\n" if text.endswith("\n") else ""
        self._sink.tell(_quoted(text.removesuffix("\n")))

    def end(self) -> None:
        self._sink.tell('"')


def is_text(schema: Mapping[str, Any], name: str) -> bool:
    """Whether the schema of a tool's arguments says that this one is a text and nothing else."""
    properties = schema.get("properties")
    about = properties.get(name) if isinstance(properties, Mapping) else None
    if not isinstance(about, Mapping):
        return False
    kinds = about.get("type")
    if kinds is None and isinstance(about.get("enum"), list):
        return all(isinstance(value, str) for value in about["enum"])
    return kinds == "string" or kinds == ["string"]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
