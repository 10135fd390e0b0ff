"""From replies to figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.peers.traffic import Reply


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least `share` (0 to 1) of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def output_rate(replies: Sequence[Reply]) -> float:
    """Output tokens a second, from the first request sent to the last token received."""
    seconds = max(reply.end_s for reply in replies) - min(reply.sent_s for reply in replies)
    return sum(reply.num_output for reply in replies) / seconds


def ttft_ms(replies: Sequence[Reply]) -> list[float]:
    return [reply.ttft_s * 1e3 for reply in replies]


def itl_ms(replies: Sequence[Reply]) -> list[float]:
    """All gaps between tokens of one request; 0 where no reply has two tokens."""
    return [gap * 1e3 for reply in replies for gap in reply.gaps_s] or [0.0]


def num_identical(first: Sequence[Reply], second: Sequence[Reply]) -> int:
    return sum(a.text == b.text for a, b in zip(first, second, strict=True))
