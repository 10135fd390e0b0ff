"""A checkpoint's own account of how its answers are written, its `response_template`: checked, and ready to use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any


class Role(Enum):
    """What becomes of a field's text."""

    CONTENT = "content"
    REASONING = "thinking"
    CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Delimiter:
    """Where a field begins or ends: at one of the literals, or where the pattern matches.

    pattern: a compiled one of the library `regex`, which can tell whether a text may still become a match.
    """

    literals: tuple[str, ...] = ()
    pattern: Any = None

    @property
    def groups(self) -> frozenset[str]:
        """Names that a match gives to parts of itself."""
        return frozenset() if self.pattern is None else frozenset(self.pattern.groupindex)


@dataclass(frozen=True, slots=True)
class Field:
    """One of a template's fields. opens: None for the implicit one, which holds what stands in no other.

    content, arguments: the name of the way its text is read, and that way's settings.
    join: stands between its texts where it is met again. transform: what is made of its value, None: nothing.
    transforms_each: of each of a list of values.
    """

    name: str
    role: Role
    opens: Delimiter | None
    closes: Delimiter | None
    content: str = "text"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    join: str = ""
    transform: Any = None
    transforms_each: bool = False

    @property
    def strips(self) -> bool:
        """Whether space around its text is not its own."""
        return bool(self.arguments.get("strip", True))


@dataclass(frozen=True, slots=True)
class ResponseTemplate:
    """anchor: behind the last one in a prompt, the answer begins.

    texts: all that it holds, with and without backslashes.
    """

    fields: tuple[Field, ...]
    anchor: Delimiter
    texts: tuple[str, ...] = ()

    @property
    def implicit(self) -> Field | None:
        return next((field for field in self.fields if field.opens is None), None)

    @property
    def has_patterns(self) -> bool:
        ends = [end for field in self.fields for end in (field.opens, field.closes)]
        return any(end is not None and end.pattern is not None for end in ends)

    def has(self, role: Role) -> bool:
        return any(field.role is role for field in self.fields)

    @property
    def reasoning_markers(self) -> tuple[str, str] | None:
        """The one text that opens reasoning and the one that ends it, if that is how it is."""
        found = [field for field in self.fields if field.role is Role.REASONING]
        if len(found) != 1 or found[0].opens is None or found[0].closes is None:
            return None
        begins, ends = found[0].opens.literals, found[0].closes.literals
        return (begins[0], ends[0]) if len(begins) == len(ends) == 1 else None

    def mentions(self, marker: str) -> bool:
        """Whether any of its texts holds that one, with or without what keeps patterns from misreading it."""
        return any(marker in text for text in self.texts)


def text_behind(prompt: str, anchor: Delimiter) -> str | None:
    """What stands behind the last anchor; None where there is none."""
    if anchor.pattern is not None:
        ends = [match.end() for match in anchor.pattern.finditer(prompt)]
        return prompt[ends[-1] :] if ends else None
    found = [(place, len(text)) for text in anchor.literals if (place := prompt.rfind(text)) >= 0]
    return prompt[sum(max(found)) :] if found else None


@dataclass(frozen=True, slots=True)
class Met:
    """A delimiter in a text. what: whom it belongs to. groups: what its pattern named."""

    start: int
    end: int
    what: Any
    groups: Mapping[str, str] = field(default_factory=dict)


def find_delimiter(
    text: str, start: int, watched: Collection[tuple[Any, Delimiter]], is_last: bool
) -> tuple[Met | None, int]:
    """The delimiter that begins first from `start` on, the longest of those that begin together; and where what may
    still become one begins (the text's length for none). None while an earlier or a longer one is possible.
    """
    best: Met | None = None
    held = len(text)
    for what, delimiter in watched:
        if delimiter.pattern is not None:
            met, pending = _match(text, start, what, delimiter.pattern, is_last)
        else:
            met, pending = _find(text, start, what, delimiter.literals, is_last)
        held = min(held, pending)
        if met is not None and (best is None or (met.start, -met.end) < (best.start, -best.end)):
            best = met
    return (None if best is not None and best.start >= held else best), held


def _find(
    text: str, start: int, what: Any, literals: tuple[str, ...], is_last: bool
) -> tuple[Met | None, int]:
    places = [(place, -len(one)) for one in literals if (place := text.find(one, start)) >= 0]
    met = None
    if places:
        place, size = min(places)
        met = Met(place, place - size, what)
    pending = len(text)
    begun, longest = _beginnings(literals)
    for place in () if is_last else range(max(start, len(text) - longest), len(text)):
        if text[place:] in begun:
            pending = place
            break
    return met, pending


@lru_cache(maxsize=256)
def _beginnings(literals: tuple[str, ...]) -> tuple[frozenset[str], int]:
    """What a literal may have begun with and gone on, and how long that is at most."""
    begun = frozenset(one[:size] for one in literals for size in range(1, len(one)))
    return begun, max(map(len, begun), default=0)


def _match(text: str, start: int, what: Any, pattern: Any, is_last: bool) -> tuple[Met | None, int]:
    found = pattern.search(text, start) if is_last else pattern.search(text, start, partial=True)
    if found is None or found.start() == found.end() == len(text):
        return None, len(text)  # what matches nothing at the end says nothing: all is over there
    if not is_last and (found.partial or _may_change(text, found, pattern)):
        return None, found.start()
    groups = {name: value for name, value in found.groupdict().items() if value is not None}
    return Met(found.start(), found.end(), what, groups), len(text)


def _may_change(text: str, found: Any, pattern: Any) -> bool:
    """Whether a match may be another one once more text comes."""
    if found.end() == len(text):
        return True
    again = pattern.match(text + "\0", found.start())  # whatever comes next, it is not the text's end
    return again is None or again.span() != found.span() or bool(again.groupdict() != found.groupdict())
