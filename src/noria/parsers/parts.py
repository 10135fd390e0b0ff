"""What a model's answer is made of, once its markup is read: pieces that encoders write in a protocol's words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A tool call begins. index: from 0 on, in order. is_custom: what follows is a text, and no JSON."""

    index: int
    id: str
    name: str
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments: joined, they are the JSON text of an object (or what the model wrote as one)."""

    index: int
    text: str


Part = Content | Reasoning | CallBegin | CallArguments


def text_of(parts: Iterable[Part]) -> str:
    """The text for the user alone."""
    return "".join(part.text for part in parts if isinstance(part, Content))


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same with neighbours of one kind as one, and without empty ones."""
    merged: list[Part] = []
    for part in parts:
        if isinstance(part, CallBegin):
            merged.append(part)
        elif part.text:
            before = merged.pop() if merged else None
            merged += [part] if before is None else _together(before, part)
    return tuple(merged)


def _together(first: Part, then: Content | Reasoning | CallArguments) -> list[Part]:
    is_same = type(first) is type(then) and getattr(first, "index", None) == getattr(then, "index", None)
    if isinstance(first, CallBegin) or not is_same:
        return [first, then]
    return [replace(first, text=first.text + then.text)]
