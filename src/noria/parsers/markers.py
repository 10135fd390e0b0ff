"""Finding the first of a few markers in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Found(NamedTuple):
    """start: where the marker begins. marker: None if there is none yet; what comes from `start` on may become one."""

    start: int
    marker: str | None


def find_first(text: str, markers: Collection[str]) -> Found:
    """The marker that begins first, wherever the text was cut. None of the markers begins like another."""
    places = [(place, marker) for marker in markers if (place := text.find(marker)) >= 0]
    start, found = min(places, default=(len(text), None))
    partial = _partial_start(text, markers)
    # A marker that has begun and is not whole yet may hold another in itself.
    return Found(partial, None) if partial < start else Found(start, found)


def _partial_start(text: str, markers: Collection[str]) -> int:
    """Where the longest end of the text that may still become a marker begins; the text's length for none."""
    longest = max(map(len, markers), default=0)
    for start in range(max(0, len(text) - longest + 1), len(text)):
        tail = text[start:]
        if any(len(marker) > len(tail) and marker.startswith(tail) for marker in markers):
            return start
    return len(text)
