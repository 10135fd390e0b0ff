"""Tool calls in a model's text, told as they come."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from noria.parsers.formats import ToolFormat
from noria.parsers.markers import find_first
from noria.parsers.parts import Content, Part
from noria.parsers.sink import CallSink
from noria.parsers.spacing import SpacedText
from noria.parsers.steps import SPACE, Cursor, NotACall, Steps

_MAX_REREAD = 64 * 1024  # characters that may be read again because what began like a call was none


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Reading what may be a call. marker: what it began with. num_calls: how many had been read before."""

    marker: str
    steps: Steps[None]
    cursor: Cursor
    num_calls: int


class ToolCallReader:
    """Parts of a text that holds calls in one format. Joined, they are the same however the text was cut.

    What looks like a call and is none is told as the text it is: a name that is no tool's, JSON that breaks off before
    its name. Once a call has begun, what the model writes into it is told, valid or not; a call that breaks off stays
    as it is. Space around markers is theirs. In a text that goes on beginning like a call and being none, markers that
    open one mean nothing from some length on: reading each to its end would take the square of that.

    hidden: markers that are special tokens, which are never told as text.
    """

    def __init__(self, tool_format: ToolFormat, sink: CallSink, hidden: Collection[str] = ()) -> None:
        self._format = tool_format
        self._sink = sink
        self._hidden = frozenset(hidden)
        self._text = ""  # not looked at yet
        self._said = SpacedText()
        self._may_be_bare = bool(tool_format.bare)
        self._is_open = False  # a call has been read, and no end marker since
        self._attempt: _Attempt | None = None
        self._num_reread = 0  # characters that went into attempts and are text after all
        self._parts: list[Part] = []

    def feed(self, text: str) -> list[Part]:
        self._text += text
        self._read()
        return self._take()

    def finish(self) -> list[Part]:
        """The text ends here: what was held back."""
        self._read()
        while self._attempt is not None:
            self._send("")
            self._read()
        self._say(self._text)  # what might have become a marker
        self._text = ""
        self._tell(self._said.flush())
        return self._take()

    def _read(self) -> None:
        """As far as the text goes."""
        while self._read_call() if self._attempt is not None else self._read_text():
            pass

    def _read_call(self) -> bool:
        text, self._text = self._text, ""
        for position, character in enumerate(text):
            self._send(character)
            if self._attempt is None:
                self._text += text[position + 1 :]
                return True
        return False

    def _send(self, character: str) -> None:
        attempt = self._attempt
        assert attempt is not None
        try:
            attempt.steps.send(character)
        except (StopIteration, NotACall):
            self._end(attempt)
        self._parts += self._sink.take()

    def _end(self, attempt: _Attempt) -> None:
        """It has read what it could: the rest is text again."""
        self._attempt = None
        self._text = attempt.cursor.unclaimed
        self._num_reread += len(self._text)
        if self._sink.num_calls > attempt.num_calls:
            self._said.drop_space()
            self._is_open = True
        elif attempt.marker not in self._hidden:
            self._say(attempt.marker)

    def _read_text(self) -> bool:
        """True if a marker was met."""
        if self._may_be_bare and not self._look_for_bare():
            return self._attempt is not None
        start, marker = find_first(self._text, self._markers())
        said, self._text = self._text[:start], self._text[start + len(marker or "") :]
        self._say(said)
        if marker is None:
            return False
        if marker in self._begins:
            self._begin(marker)
        else:
            self._is_open &= marker not in self._format.ends
            self._said.drop_space()
        return True

    def _look_for_bare(self) -> bool:
        """Whether the text begins otherwise; if it begins as a call does, an attempt is made."""
        text = self._text.lstrip(SPACE)
        if not text:
            return False
        self._may_be_bare = False
        if text[0] not in self._format.bare:
            return True
        self._say(self._text[: len(self._text) - len(text)])
        self._text = text
        self._begin("")
        return False

    @property
    def _begins(self) -> tuple[str, ...]:
        return self._format.begins if self._num_reread <= _MAX_REREAD else ()

    def _markers(self) -> tuple[str, ...]:
        ends = self._format.ends if self._is_open else ()
        others = [marker for marker in self._hidden if marker not in self._begins]
        return (*self._begins, *ends, *self._format.silent, *others)

    def _begin(self, marker: str) -> None:
        cursor = Cursor()
        steps = self._format.body(cursor, self._sink)
        next(steps)
        self._attempt = _Attempt(marker, steps, cursor, self._sink.num_calls)

    def _say(self, text: str) -> None:
        self._tell(self._said.feed(text))

    def _tell(self, text: str) -> None:
        if text:
            self._parts.append(Content(text))

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts
