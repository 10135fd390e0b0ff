"""Steps that are as long as a latency target lets them be, by a price of tokens that is corrected while running."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from noria.config.engine import LatencyTarget, StepCost
from noria.core.prices import PromptShare, TimePrices, nanoseconds

_WINDOW = 256  # steps that count: the machine of a minute ago may be another one
_FEWEST = 16  # steps before they count
_QUANTILE = 0.95  # of gaps that keep to the target where every step is as long as it may be
_MARGIN = 0.96  # of the target: the percentile is that of a while ago
_UNKNOWN = 1.15  # stands in for it at first
_RANGE = (0.5, 4.0)
_CROWDED = 0.75  # of a step, spent on decodes: prompts need the rest to go on
_IDLE_STEPS = (
    4  # a prompt may take so many steps' time at once where nobody decodes: what comes then waits for it
)


class LatencyPrices:
    """Nanoseconds, as `TimePrices`, of a step that keeps gaps between tokens below a target.

    What gaps between tokens took against what was foretold, at their 95th percentile, scales what a step may cost, so
    a slow machine gets shorter steps and its noise has room. Where nobody decodes there is no gap to keep, and a step
    may take longer: as much as a newcomer may wait.
    """

    def __init__(self, cost: StepCost, target: LatencyTarget) -> None:
        self._tokens = TimePrices(cost)
        self._fixed_s = cost.fixed_s
        self._gap_s = _MARGIN * (cost.target_s if target.itl_s is None else target.itl_s)
        self._idle_s = _IDLE_STEPS * self._gap_s
        if target.ttft_s is not None:
            self._idle_s = min(self._idle_s, target.ttft_s / 2)
        self._foretold_s = 0.0  # of the step that computes, if the gap that it ends counts
        self._last_s: float | None = None  # when results were there last
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    @property
    def slowness(self) -> float:
        """What a step takes over what its price says, at most, 19 times in 20."""
        if len(self._sorted) < _FEWEST:
            return _UNKNOWN
        lowest, highest = _RANGE
        return min(max(self._sorted[int(_QUANTILE * len(self._sorted))], lowest), highest)

    @property
    def step(self) -> int:
        return self._within(self._gap_s)

    def of(self, num_new: int, num_computed: int) -> int:
        return self._tokens.of(num_new, num_computed)

    def tokens(self, price: int, num_computed: int) -> int:
        return self._tokens.tokens(price, num_computed)

    def for_prompts(self, spent: int, num_decodes: int) -> PromptShare:
        if num_decodes == 0:
            return PromptShare(max(self._within(self._idle_s), self.step))
        return PromptShare(max(self.step - spent, self.step // 8), spent <= _CROWDED * self.step)

    def planned(self, spent: int, num_decodes: int, now_s: float) -> None:
        # With nobody's token before it, there is no gap that the step could be the end of.
        self._foretold_s = self._fixed_s + 1e-9 * spent if num_decodes else 0.0

    def done(self, now_s: float) -> None:
        if self._foretold_s and self._last_s is not None:
            self._learn((now_s - self._last_s) / self._foretold_s)
        self._foretold_s = 0.0
        self._last_s = now_s

    def _learn(self, ratio: float) -> None:
        if len(self._recent) == _WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]
        self._recent.append(ratio)
        insort(self._sorted, ratio)

    def _within(self, seconds: float) -> int:
        """The price of what takes that long; a thousandth of it at least, so that something always goes on."""
        return nanoseconds(max(seconds / self.slowness - self._fixed_s, 1e-3 * seconds))
