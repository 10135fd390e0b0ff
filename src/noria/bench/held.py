"""How many tokens the blocks of running sequences hold, and how many they could: what a block size wastes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Held:
    """Means over steps. waste: share of the slots in blocks that hold no token. entries: of block tables, in all."""

    waste: float
    entries: float


def held(steps: Sequence[dict[str, Any]], block_size: int) -> Held:
    """steps: rows as a StepLog keeps them. Blocks that sequences share count for each of them."""
    num_slots = num_tokens = num_entries = 0
    for lengths in _lengths(steps):
        blocks = sum(-(-length // block_size) for length in lengths)
        num_entries += blocks
        num_slots += blocks * block_size
        num_tokens += sum(lengths)
    waste = 1 - num_tokens / num_slots if num_slots else 0.0
    return Held(waste, num_entries / max(1, len(steps)))


def _lengths(steps: Sequence[dict[str, Any]]) -> Iterator[list[int]]:
    """Of every step: the tokens that each sequence which runs then holds after it."""
    last = _last_steps(steps)
    holds: dict[str, int] = {}
    for number, step in enumerate(steps):
        for request_id, num_computed, num_new in step["work"]:
            holds[request_id] = num_computed + num_new
        yield list(holds.values())
        for request_id, _, _ in step["work"]:
            if last[request_id] == number:
                del holds[request_id]


def _last_steps(steps: Iterable[dict[str, Any]]) -> dict[str, int]:
    return {request_id: number for number, step in enumerate(steps) for request_id, _, _ in step["work"]}
