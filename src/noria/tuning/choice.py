"""Which of the measured settings is the one, and which are worth knowing of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from noria.bench.stats import Interval
from noria.tuning.probe import Figures, ProbeResult
from noria.tuning.setting import Setting

_TIED = 0.01  # relative: rates this near to each other are one


@dataclass(frozen=True, slots=True)
class Contender:
    """best: the probe at its highest rate."""

    setting: Setting
    rate: float
    best: ProbeResult

    @property
    def lower_bound(self) -> float:
        """Requests a second that keep their limits, at the lower end of what is known."""
        low = self.best.figures.goodput.low
        value = self.best.figures.goodput.value
        if math.isnan(low) or not value > 0:
            return self.rate
        # The goodput counts what came by chance; the rate is what was meant to.
        return self.rate * low / value


def choose(contenders: Sequence[Contender]) -> Contender:
    """The highest lower bound; of those within 1 % of it, the one with the fewest overrides, then the one that needs
    least memory (P99 of KV in use), then the one with the fewest preemptions."""
    most = max(one.lower_bound for one in contenders)
    tied = [one for one in contenders if one.lower_bound >= (1 - _TIED) * most]
    return min(tied, key=lambda one: (len(one.setting.overrides()), *_burden(one.best.figures)))


def _burden(figures: Figures) -> tuple[float, float]:
    """What is not known counts as most."""
    return _known(round(figures.kv_util_p99, 2)), _known(figures.preempt_rate)


def _known(value: float) -> float:
    return math.inf if math.isnan(value) else value


@dataclass(frozen=True, slots=True)
class Point:
    """A setting at a rate."""

    setting: Setting
    probe: ProbeResult


def pareto(points: Sequence[Point]) -> list[Point]:
    """Those that none other dominates."""
    return [one for one in points if not any(dominates(other, one) for other in points)]


def dominates(one: Point, other: Point) -> bool:
    """At least as good in throughput, TTFT and ITL, and better in one by so much that the intervals do not touch."""
    pairs = list(zip(_axes(one.probe.figures), _axes(other.probe.figures), strict=True))
    is_as_good = all(mine.value <= theirs.value for mine, theirs in pairs)
    return is_as_good and any(_high(mine) < _low(theirs) for mine, theirs in pairs)


def _axes(figures: Figures) -> tuple[Interval, Interval, Interval]:
    """Each better when it is less."""
    goodput = figures.goodput
    return Interval(-goodput.value, -goodput.high, -goodput.low), figures.ttft, figures.itl


def _low(interval: Interval) -> float:
    return -math.inf if math.isnan(interval.low) else interval.low


def _high(interval: Interval) -> float:
    return math.inf if math.isnan(interval.high) else interval.high
