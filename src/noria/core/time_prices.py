"""Steps that are as long as a latency target lets them be, by a price of tokens that is corrected while running."""

from __future__ import annotations

from math import ceil, inf

from noria.config.engine import FEWEST_TOKENS, LatencyTarget, SchedulerConfig
from noria.core.prices import PromptShare
from noria.core.slowness import Slowness

_MARGIN = 0.96  # of the target: the percentile is that of a while ago
_IDLE_STEPS = (
    4  # a prompt may take so many steps' time at once where nobody decodes: what comes then waits for it
)
# Of a step. Decodes that take more let nobody join them, where the gaps between tokens have a limit; else all join.
_CROWDED, _OPEN = 0.75, inf
_LEAST_LIMITED, _LEAST = 1 / 8, 1 / 4  # of a step, for prompts, whatever the decodes take
_LEAST_STEP = 1e-3  # of a limit, so that something always goes on
# Of a full step: what a shorter one took tells nothing of what a full one will. Where the gaps have a limit all tell
# something, for the decodes alone may break it.
_TELLING_LIMITED, _TELLING = 0.0, 1 / 2


class TimePrices:
    """A token costs the nanoseconds that it takes, which grow with what it attends to; a step costs what keeps gaps
    between tokens below a target.

    What those gaps took against what was foretold, at their 95th percentile, scales what a step may cost, so a slow
    machine gets shorter steps and its noise has room. Steps that are far from full do not count: their gaps are no
    matter, but where users stated a limit. Where nobody decodes there is no gap to keep, and a step may take longer: as
    much as a newcomer may wait.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        """config: with a step_cost. Without a stated limit for gaps, they are kept to what the cost aims at, and nobody
        waits for their sake.
        """
        assert config.step_cost is not None, "a price in time without a cost"
        cost, target = config.step_cost, config.latency or LatencyTarget()
        is_limited = target.itl_s is not None
        self._cost = cost
        self._gap_s = _MARGIN * config.gap_s
        self._idle_s = _IDLE_STEPS * self._gap_s
        if target.ttft_s is not None:
            self._idle_s = min(self._idle_s, target.ttft_s / 2)
        self._telling = _TELLING_LIMITED if is_limited else _TELLING
        self._fullest = self.of(
            config.max_num_batched_tokens, 0
        )  # at least what a step of the most tokens costs
        self._crowded = _CROWDED if is_limited else _OPEN
        self._least = _LEAST_LIMITED if is_limited else _LEAST
        self._least_step_s = _LEAST_STEP * self._gap_s if is_limited else cost.seconds(FEWEST_TOKENS, 0)
        self._foretold_s = 0.0  # of the step that computes, if the gap that it ends counts
        self._last_s: float | None = None  # when results were there last
        self._slowness = Slowness()

    @property
    def slowness(self) -> float:
        """What a step takes over what its price says, at most, 19 times in 20."""
        return self._slowness.ratio

    @property
    def step(self) -> int:
        return self._within(self._gap_s)

    def of(self, num_new: int, num_computed: int) -> int:
        return _nanoseconds(self._cost.seconds(num_new, num_computed))

    def tokens(self, price: int, num_computed: int) -> int:
        return self._cost.tokens_within(1e-9 * price, num_computed)

    def for_prompts(self, spent: int, num_decodes: int) -> PromptShare:
        step = self.step
        if num_decodes == 0:
            return PromptShare(max(self._within(self._idle_s), step))
        # Where many requests decode, prompts still go on; the step takes that much longer.
        return PromptShare(max(step - spent, int(self._least * step)), spent <= self._crowded * step)

    def planned(self, spent: int, num_decodes: int, now_s: float) -> None:
        # With nobody's token before it, there is no gap that the step could be the end of.
        counts = num_decodes > 0 and spent >= self._telling * min(self.step, self._fullest)
        self._foretold_s = self._cost.fixed_s + 1e-9 * spent if counts else 0.0

    def done(self, now_s: float) -> None:
        if self._foretold_s and self._last_s is not None:
            self._slowness.learn((now_s - self._last_s) / self._foretold_s)
        self._foretold_s = 0.0
        self._last_s = now_s

    def _within(self, seconds: float) -> int:
        """The price of what takes that long."""
        return _nanoseconds(max(seconds / self.slowness - self._cost.fixed_s, self._least_step_s))


def _nanoseconds(seconds: float) -> int:
    return ceil(1e9 * seconds)
