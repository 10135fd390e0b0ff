"""Reading a whole answer: reasoning first, then text and tool calls."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Protocol

from noria.parsers.parts import CallArguments, CallBegin, Content, Part, joined
from noria.parsers.reasoning import ReasoningReader
from noria.parsers.sink import MakeId


class TextReader(Protocol):
    """Parts of a text that comes in pieces; joined, the same however it was cut."""

    def feed(self, text: str) -> list[Part]: ...

    def finish(self) -> list[Part]:
        """The text ends here: what was held back."""
        ...


class AnswerReader(Protocol):
    """Parts of a whole answer, its reasoning too."""

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the output's tokens were reasoning, markers included."""
        ...

    def feed(self, text: str, offsets: tuple[int, ...], is_last: bool) -> tuple[Part, ...]:
        """offsets: for each token that came with the text, how much text went before it."""
        ...


class PlainReader:
    """Everything is text for the user."""

    def feed(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        return []


class NamedCallReader:
    """The whole text is the arguments of one call, since a grammar made it so."""

    def __init__(self, name: str, make_id: MakeId, is_custom: bool = False) -> None:
        self._begin: CallBegin | None = CallBegin(0, make_id(0, name), name, is_custom)

    def feed(self, text: str) -> list[Part]:
        begin, self._begin = self._begin, None
        told: list[Part] = [begin] if begin else []
        return [*told, CallArguments(0, text)] if text else told

    def finish(self) -> list[Part]:
        return self.feed("")


class ReplyReader:
    """reasoning: None where the model's reasoning is not told apart. answer: reads the rest.
    tells_reasoning: else it is told apart, and dropped.

    num_reasoning_tokens: how many of the output's tokens were reasoning, markers included.
    """

    def __init__(
        self, reasoning: ReasoningReader | None, answer: TextReader, tells_reasoning: bool = True
    ) -> None:
        self._reasoning = reasoning
        self._answer = answer
        self._tells_reasoning = tells_reasoning
        self._offsets: list[
            int
        ] = []  # where tokens begin in the text that are not known to be reasoning, or not
        self.num_reasoning_tokens = 0

    def feed(self, text: str, offsets: tuple[int, ...], is_last: bool) -> tuple[Part, ...]:
        """offsets: for each token that came with the text, how much text went before it."""
        parts = self._read(text)
        if is_last:
            parts += self._finish()
        self._count(offsets)
        return joined(parts)

    def _read(self, text: str) -> list[Part]:
        if self._reasoning is None:
            return self._answer.feed(text)
        return list(self._answered(self._reasoning.feed(text)))

    def _finish(self) -> list[Part]:
        rest = [] if self._reasoning is None else list(self._answered(self._reasoning.finish()))
        return rest + self._answer.finish()

    def _answered(self, parts: list[Part]) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, Content):
                yield from self._answer.feed(part.text)
            elif self._tells_reasoning:
                yield part

    def _count(self, offsets: tuple[int, ...]) -> None:
        reasoning = self._reasoning
        if reasoning is None or (reasoning.is_over and not self._offsets and not offsets):
            return
        self._offsets += offsets
        num_reasoned = bisect_left(self._offsets, reasoning.num_characters)
        self.num_reasoning_tokens += num_reasoned
        del self._offsets[:num_reasoned]
        if reasoning.is_over:
            self._offsets.clear()
