"""What a choice said, as protocols tell it that give every stretch of it a place of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from noria.parsers.parts import CallArguments, CallBegin, Content, Part, Reasoning, joined


@dataclass(frozen=True, slots=True)
class Block:
    """begin: its first part, which says of what kind it is. text: all of it; of a call, its arguments."""

    begin: Content | Reasoning | CallBegin
    text: str

    @property
    def is_call(self) -> bool:
        return isinstance(self.begin, CallBegin)


def blocks_of(parts: Iterable[Part]) -> list[Block]:
    """In order: a block for each stretch of text or reasoning, and for each call."""
    blocks: list[Block] = []
    for part in joined(parts):
        if isinstance(part, CallArguments):
            call = blocks.pop()
            blocks.append(Block(call.begin, call.text + part.text))
        elif isinstance(part, CallBegin):
            blocks.append(Block(part, ""))
        else:
            blocks.append(Block(part, part.text))
    return blocks
