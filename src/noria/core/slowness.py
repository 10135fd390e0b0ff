"""How much longer steps take than foretold: a percentile of those that were seen last."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

_WINDOW = (
    256  # steps that count: the machine of a minute ago may be another one, and one in twenty may be late
)
_QUANTILE = 0.95
# Stand in for steps until those are seen, one by one: the first that is late may be chance, the second is believed.
_ASSUMED = (1.15,) * 24
_RANGE = (0.5, 4.0)


class Slowness:
    """Learns from ratios: what a step took over what was foretold."""

    def __init__(self) -> None:
        self._num_assumed = len(_ASSUMED)
        self._recent = deque(_ASSUMED)
        self._sorted = list(_ASSUMED)

    @property
    def ratio(self) -> float:
        """What 19 in 20 keep below."""
        lowest, highest = _RANGE
        return min(max(self._sorted[int(_QUANTILE * len(self._sorted))], lowest), highest)

    def learn(self, ratio: float) -> None:
        if self._num_assumed or len(self._recent) == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
            self._num_assumed = max(0, self._num_assumed - 1)
        self._recent.append(ratio)
        insort(self._sorted, ratio)
