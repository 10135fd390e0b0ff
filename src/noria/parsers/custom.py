"""Calls of custom tools, whose arguments are a text: one that a grammar made, or one within the JSON of a call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from noria.parsers.parts import CallArguments, CallBegin, Part, joined
from noria.parsers.reply import AnswerReader, TextReader
from noria.parsers.sink import MakeId

INPUT = "input"  # the one argument that a model is told of
_HEAD = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"input"[ \t\r\n]*:[ \t\r\n]*"')
_HIGH = re.compile(r"\\u[dD][89abAB]")  # the first half of a pair


class InputText:
    """The text in {"input": "..."}, as it comes; what else a model wrote is told as it is, at the end."""

    def __init__(self) -> None:
        self._text = ""  # not told yet
        self._is_in = False
        self._is_over = False

    def feed(self, text: str) -> str:
        self._text += text
        if not self._is_in:
            head = _HEAD.match(self._text)
            if head is None:
                return ""
            self._is_in = True
            self._text = self._text[head.end() :]
        return "" if self._is_over else self._take()

    def finish(self) -> str:
        return "" if self._is_in else self._text

    def _take(self) -> str:
        told, place = [], 0
        while place < len(self._text):
            size = self._size_at(place)
            if place + size > len(self._text):
                break
            written = self._text[place : place + size]
            if written == '"':
                self._is_over = True
                break
            told.append(_read(written))
            place += size
        self._text = "" if self._is_over else self._text[place:]
        return "".join(told)

    def _size_at(self, place: int) -> int:
        """Of the character that begins there, as it is written."""
        if self._text[place] != "\\":
            return 1
        if self._text[place + 1 : place + 2] != "u":
            return 2
        if not _HIGH.match(self._text, place):
            return 6
        return 12 if self._text[place + 6 : place + 8] in ("", "\\", "\\u") else 6


def _read(written: str) -> str:
    if not written.startswith("\\"):
        return written
    try:
        text: str = json.loads(f'"{written}"')
    except ValueError:
        return written
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class CustomReader:
    """An AnswerReader that tells the inputs of custom tools, by name, as the text that they are."""

    def __init__(self, reader: AnswerReader, names: Collection[str]) -> None:
        self._reader = reader
        self._names = names
        self._inputs: dict[int, InputText] = {}  # of calls that go on

    @property
    def num_reasoning_tokens(self) -> int:
        return self._reader.num_reasoning_tokens

    def feed(self, text: str, offsets: tuple[int, ...], is_last: bool) -> tuple[Part, ...]:
        told: list[Part] = []
        for part in self._reader.feed(text, offsets, is_last):
            told += self._told(part)
        if is_last:
            told += self._ended()
        return joined(told)

    def _told(self, part: Part) -> list[Part]:
        if isinstance(part, CallArguments):
            own = self._inputs.get(part.index)
            return [part if own is None else CallArguments(part.index, own.feed(part.text))]
        before = self._ended()
        if isinstance(part, CallBegin) and part.name in self._names and not part.is_custom:
            self._inputs[part.index] = InputText()
            part = replace(part, is_custom=True)
        return [*before, part]

    def _ended(self) -> list[Part]:
        rest: list[Part] = [CallArguments(index, own.finish()) for index, own in self._inputs.items()]
        self._inputs.clear()
        return rest


class ForcedReader:
    """An answer that a grammar makes calls of functions, or one call of a custom tool: its head, then its input.

    heads: by head, the tool's name. functions: makes what reads calls of functions, which begin otherwise.
    """

    def __init__(
        self, heads: Mapping[str, str], functions: Callable[[], TextReader], make_id: MakeId
    ) -> None:
        self._heads = heads
        self._functions = functions
        self._make_id = make_id
        self._text = ""
        self._reader: TextReader | None = None
        self._is_input = False

    def feed(self, text: str) -> list[Part]:
        if self._is_input:
            return [CallArguments(0, text)] if text else []
        if self._reader is not None:
            return self._reader.feed(text)
        self._text += text
        head = next((one for one in self._heads if self._text.startswith(one)), None)
        if head is not None:
            name = self._heads[head]
            self._is_input = True
            return [CallBegin(0, self._make_id(0, name), name, True), *self.feed(self._text[len(head) :])]
        if any(one.startswith(self._text) for one in self._heads):
            return []
        self._reader = self._functions()
        return self._reader.feed(self._text)

    def finish(self) -> list[Part]:
        if self._reader is None and not self._is_input:
            self._reader = self._functions()
            return [*self._reader.feed(self._text), *self._reader.finish()]
        return [] if self._reader is None else self._reader.finish()
