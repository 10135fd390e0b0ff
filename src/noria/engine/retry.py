"""What a refused client is told about when to come back."""

from __future__ import annotations

from math import ceil

_LONGEST_S = 120  # clients obey no longer time than that


def retry_after(seconds: float) -> int:
    """Whole seconds, at least one, rounded up."""
    return min(_LONGEST_S, max(1, ceil(seconds)))
