"""What a token of a step costs, and how much a step may cost: the unit in which a step is shared out."""

from __future__ import annotations

from math import ceil
from typing import Protocol

from noria.config.engine import SchedulerConfig, StepCost


class Prices(Protocol):
    """Whole numbers of any one unit.

    step: what a step may cost. for_prompts: what prompts may cost in any step, however much its decodes do.
    """

    step: int
    for_prompts: int

    def of(self, num_new: int, num_computed: int) -> int:
        """The price of num_new tokens of a request that follow num_computed others."""
        ...

    def tokens(self, price: int, num_computed: int) -> int:
        """The most tokens at that price."""
        ...


class TokenPrices:
    """Every token costs one."""

    def __init__(self, num_tokens: int) -> None:
        self.step = num_tokens
        self.for_prompts = 0  # decodes leave what they leave

    def of(self, num_new: int, num_computed: int) -> int:
        return num_new

    def tokens(self, price: int, num_computed: int) -> int:
        return price


class TimePrices:
    """A token costs the nanoseconds that it takes, which grow with what it attends to."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self.step = _nanoseconds(cost.target_s - cost.fixed_s)
        # Where many requests decode, prompts still go on; the step takes that much longer.
        self.for_prompts = self.step // 4

    def of(self, num_new: int, num_computed: int) -> int:
        return _nanoseconds(self._cost.seconds(num_new, num_computed))

    def tokens(self, price: int, num_computed: int) -> int:
        return self._cost.tokens_within(1e-9 * price, num_computed)


def _nanoseconds(seconds: float) -> int:
    return ceil(1e9 * seconds)


def choose_prices(config: SchedulerConfig) -> Prices:
    if config.step_cost is None:
        return TokenPrices(config.max_num_batched_tokens)
    return TimePrices(config.step_cost)
