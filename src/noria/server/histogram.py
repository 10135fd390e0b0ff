"""Histograms as plain arrays: cheap to fill on the engine's thread, made into samples when scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate


class Histogram:
    """Counts of observations by upper bound (inclusive). Not locked: its owner is.

    bounds: ascending, without +Inf, which is implied.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    @property
    def count(self) -> int:
        return sum(self._counts)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_all(self, values: Iterable[float]) -> None:
        for value in values:
            self.observe(value)

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it) as Prometheus wants them: cumulative, the last is +Inf."""
        names = [str(float(bound)) for bound in self.bounds] + ["+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_GAP_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
STEP_TOKENS = (1.0, *(float(2**power) for power in range(3, 15)))  # 1 8 16 .. 16384
CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def token_counts(highest: int) -> tuple[float, ...]:
    """1 2 5 10 20 50 ... up to `highest`."""
    bounds = []
    scale = 1
    while scale <= highest:
        bounds += [float(digit * scale) for digit in (1, 2, 5) if digit * scale <= highest]
        scale *= 10
    return tuple(bounds)
