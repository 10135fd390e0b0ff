"""Reading an answer by its checkpoint's response template."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from noria.parsers.parts import Content, Part, Reasoning, joined
from noria.parsers.sink import CallSink
from noria.parsers.steps import Cursor, NotACall
from noria.parsers.template import (
    Delimiter,
    Field,
    Met,
    ResponseTemplate,
    Role,
    find_delimiter,
    text_behind,
)
from noria.parsers.template_values import calls_in

_MAX_DELIMITER = 1024  # characters that may be looked at again and again as they may become one
_CONTEXT = 256  # characters before what is looked at that a pattern may look back to
_DROPPED = "dropped"  # a special token that says nothing here


class _Spaced:
    """A field's text as it comes: space is held back until it is known whether it stands at an edge."""

    def __init__(self, strips: bool) -> None:
        self._strips = strips
        self._has_begun = not strips
        self.held = ""

    def feed(self, text: str) -> str:
        if not self._strips:
            return text
        whole = self.held + text
        certain = whole.rstrip()
        if not certain:
            self.held = whole
            return ""
        self.held = whole[len(certain) :]
        begun, self._has_begun = self._has_begun, True
        return certain if begun else certain.lstrip()

    def goes_on(self) -> None:
        """What was told before belongs to the same text."""
        self._has_begun = True


class _Region:
    """A part of an answer that is one field's. field: None for text that no field takes.

    opening: the space before it and what opened it, which are text if it is no call after all.
    has_begun: it was opened, or has a text. is_joined: what stands between it and the one before is told, or nothing.
    """

    def __init__(self, field: Field | None) -> None:
        self.field = field
        self.groups: dict[str, str] = {}
        self.opening = ""
        self.body: list[str] = []  # of calls, which are read once they are whole
        self.spaced = _Spaced(field is None or field.strips)
        self.has_begun = False
        self.is_joined = False

    @property
    def is_calls(self) -> bool:
        return self.field is not None and self.field.role is Role.CALLS


class _Tally:
    """How many tokens of an answer were reasoning."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self._offsets: deque[int] = deque()  # of tokens that are not known to be reasoning, or not
        self._spans: deque[tuple[int, bool]] = deque()  # (end, whether it is reasoning), in order
        self._end = 0

    def read(self, num_characters: int, is_reasoning: bool) -> None:
        self._end += num_characters
        self._spans.append((self._end, is_reasoning))

    def begin_answer(self, num_pending: int) -> None:
        """What was read so far, and the next so many characters, are the prompt's."""
        self._end = -num_pending
        self._spans.clear()

    def count(self, offsets: Collection[int]) -> None:
        self._offsets.extend(offsets)
        while self._offsets and self._spans:
            end, is_reasoning = self._spans[0]
            if self._offsets[0] < end:
                self._offsets.popleft()
                self.num_tokens += is_reasoning
            else:
                self._spans.popleft()
        if not self._offsets:
            self._spans.clear()


class TemplateReader:
    """Parts of an answer that a response template describes. Joined, they are the same however the text was cut.

    prompt: the end of it, from which it is read where the answer goes on. sink: None where no calls may be made: they
    are text then, as they are where they cannot be read or call what is no tool. hidden: special tokens, which are
    never told as text. tells_reasoning: else it is dropped.

    Where delimiters are patterns, the text is read a character at a time, so that what they match cannot depend on
    how it was cut; and once _MAX_DELIMITER characters may yet become a match, no more delimiters are looked for.
    """

    def __init__(
        self,
        template: ResponseTemplate,
        sink: CallSink | None,
        prompt: str = "",
        hidden: Collection[str] = (),
        tells_reasoning: bool = True,
    ) -> None:
        self._template = template
        self._sink = sink
        self._hidden = tuple(sorted(hidden))
        self._tells_reasoning = tells_reasoning
        self._text = ""
        self._position = 0  # in the text: what is not read yet
        self._region = _Region(template.implicit)
        self._met: set[str] = set()  # names of fields that have been left
        self._watched = self._delimiters(self._region)
        self._parts: list[Part] = []
        self._tally = _Tally()
        self._begin(prompt)

    @property
    def num_reasoning_tokens(self) -> int:
        """How many of the output's tokens were reasoning, delimiters included."""
        return self._tally.num_tokens

    def feed(self, text: str, offsets: tuple[int, ...], is_last: bool) -> tuple[Part, ...]:
        """offsets: for each token that came with the text, how much text went before it."""
        for piece in text if self._template.has_patterns else (text,):
            self._text += piece
            self._read(is_last=False)
        if is_last:
            self._read(is_last=True)
            self._leave("")
        self._tally.count(offsets)
        return self._take()

    def _begin(self, prompt: str) -> None:
        self.feed(text_behind(prompt, self._template.anchor) or "", (), is_last=False)
        self._region.spaced.held = ""
        self._tally.begin_answer(len(self._text) - self._position)

    def _take(self) -> tuple[Part, ...]:
        parts, self._parts = self._parts, []
        return joined(parts)

    def _read(self, is_last: bool) -> None:
        while True:
            met, held = find_delimiter(self._text, self._position, self._watched, is_last)
            self._pass(held if met is None else met.start)
            if met is None:
                break
            if met.start == met.end and not self._may_end_before_a_text(met):
                self._pass(met.end + 1)
            else:
                self._cross(met)
        if len(self._text) - self._position > _MAX_DELIMITER:
            self._watched = []
        if self._position > 4 * _CONTEXT:
            self._text = self._text[self._position - _CONTEXT :]
            self._position = _CONTEXT

    def _may_end_before_a_text(self, met: Met) -> bool:
        """A field may end where another text begins; none can open there, or reading would never end."""
        return met.what is None and self._region.field is not self._template.implicit

    def _delimiters(self, region: _Region) -> list[tuple[object, Delimiter]]:
        """What may end the region's text, and for whom."""
        watched: list[tuple[object, Delimiter]] = []
        field = region.field
        if field is self._template.implicit:
            watched += [(one, one.opens) for one in self._template.fields if one.opens is not None]
        if field is not None and field.closes is not None:
            watched.append((None, field.closes))
        if self._hidden and not region.is_calls:
            watched.append((_DROPPED, Delimiter(self._hidden)))
        return watched

    def _pass(self, end: int) -> None:
        """The region's text goes on to there."""
        text, self._position = self._text[self._position : end], end
        region = self._region
        if not text:
            return
        self._count(len(text))
        if region.field is None:
            return
        region.has_begun = True
        if region.is_calls:
            region.body.append(text)
        else:
            self._join(region)
            self._tell(region.field, region.spaced.feed(text))

    def _cross(self, met: Met) -> None:
        written = self._text[met.start : met.end]
        self._position = met.end
        if isinstance(met.what, Field):
            self._enter(met.what, met, written)
            self._count(len(written))
            return
        self._count(len(written))
        if met.what is not _DROPPED:
            self._region.groups.update(met.groups)
            self._leave(written)

    def _enter(self, field: Field, met: Met, written: str) -> None:
        before = self._region.spaced.held
        self._leave("")
        self._region = region = _Region(field)
        region.groups.update(met.groups)
        region.opening = before + written
        region.has_begun = True
        self._watched = self._delimiters(region)
        self._join(region)

    def _leave(self, closing: str) -> None:
        """The region ends; what follows is the implicit field's."""
        left, self._region = self._region, _Region(self._template.implicit)
        self._watched = self._delimiters(self._region)
        if left.field is None or not left.has_begun:
            return
        self._met.add(left.field.name)
        body = "".join(left.body)
        if left.is_calls and not self._told_calls(body, left.field, left.groups):
            self._as_text(left.opening + body + closing)

    def _told_calls(self, body: str, field: Field, groups: Mapping[str, str]) -> bool:
        sink = self._sink
        if sink is None:
            return False
        try:
            calls = calls_in(body, field, groups, sink.tools)
        except NotACall:
            return False
        for call in calls:
            sink.begin(Cursor(), call.name)
            sink.tell(call.arguments)
        self._parts += sink.take()
        return True

    def _as_text(self, text: str) -> None:
        """What was no call belongs to the text around it."""
        for marker in self._hidden:
            text = text.replace(marker, "")
        self._parts.append(Content(text))
        self._region.spaced.goes_on()
        self._region.is_joined = True

    def _join(self, region: _Region) -> None:
        field = region.field
        if field is not None and not region.is_joined and field.name in self._met:
            self._tell(field, field.join)
        region.is_joined = True

    def _tell(self, field: Field, text: str) -> None:
        if text and field.role is Role.CONTENT:
            self._parts.append(Content(text))
        elif text and self._tells_reasoning:
            self._parts.append(Reasoning(text))

    def _count(self, num_characters: int) -> None:
        field = self._region.field
        self._tally.read(num_characters, field is not None and field.role is Role.REASONING)
