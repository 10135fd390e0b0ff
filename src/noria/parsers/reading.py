"""How the answers of one request are to be read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from noria.parsers.formats import REQUIRED_FORMAT, ReasoningFormat, ToolFormat
from noria.parsers.reasoning import Place, ReasoningReader
from noria.parsers.reply import AnswerReader, NamedCallReader, PlainReader, ReplyReader, TextReader
from noria.parsers.sink import CallSink, MakeId
from noria.parsers.tool_calls import ToolCallReader


@dataclass(frozen=True, slots=True)
class Reading:
    """What every answer's reader is made from.

    answer: makes what reads an answer behind its reasoning. reasoning: None where it is not told apart.
    tells_reasoning: whether a reply holds it. place: where an answer begins. shown_ids: special tokens whose text is
        read too. customs: tools whose arguments are a text. whole: makes what reads an answer all by itself, reasoning
        and all; the others say nothing then.
    """

    answer: Callable[[], TextReader] = PlainReader
    reasoning: ReasoningFormat | None = None
    tells_reasoning: bool = True
    place: Place = Place.START
    shown_ids: frozenset[int] = frozenset()
    whole: Callable[[], AnswerReader] | None = None
    customs: frozenset[str] = frozenset()

    @property
    def counts_reasoning(self) -> bool:
        """Whether the tokens of reasoning can be told from others."""
        return self.reasoning is not None or self.whole is not None

    def reader(self) -> AnswerReader:
        reader = self._reader()
        if not self.customs:
            return reader
        from noria.parsers.custom import CustomReader  # few chats have such tools

        return CustomReader(reader, self.customs)

    def _reader(self) -> AnswerReader:
        if self.whole is not None:
            return self.whole()
        reasoning = ReasoningReader(self.reasoning, self.place) if self.reasoning else None
        return ReplyReader(reasoning, self.answer(), self.tells_reasoning)


PLAIN_READING = Reading()


@dataclass(frozen=True, slots=True)
class Calls:
    """Tools that an answer may call. tools: by name, the schema of the arguments. max_calls: later ones are dropped."""

    tools: Mapping[str, Mapping[str, Any]]
    make_id: MakeId
    max_calls: int | None = None

    def free(self, tool_format: ToolFormat, hidden: Collection[str]) -> Callable[[], TextReader]:
        """For answers that may hold calls in that format. hidden: as ToolCallReader has it."""
        return lambda: ToolCallReader(tool_format, self.sink(), hidden)

    def required(self) -> Callable[[], TextReader]:
        """For answers that a grammar makes a list of calls."""
        return lambda: ToolCallReader(REQUIRED_FORMAT, self.sink())

    def named(self, name: str, is_custom: bool) -> Callable[[], TextReader]:
        """For answers that a grammar makes the arguments of that tool, or its input."""
        return lambda: NamedCallReader(name, self.make_id, is_custom)

    def required_or_custom(self, heads: Mapping[str, str]) -> Callable[[], TextReader]:
        """The same, or one call of a custom tool behind its head. heads: by head, the tool's name."""
        from noria.parsers.custom import ForcedReader

        return lambda: ForcedReader(heads, self.required(), self.make_id)

    def sink(self) -> CallSink:
        return CallSink(self.tools, self.make_id, self.max_calls)
