"""When requests shall arrive: instants in seconds from the start of the load, fixed before it starts.

Every process is made at rate 1 and then stretched in time, so two rates with one seed differ in nothing but their rate.
Nothing is rescaled to end on a round number: that would take the randomness out of the count.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from noria.bench.stats import Values
from noria.config.errors import ConfigError

_SAME = 1e-9  # relative: rates this near to each other are one


class Scaling(str, Enum):
    """How the instants of a trace are brought to another rate."""

    COMPRESS = "compress"  # divide times: bursts stay, and get denser
    THIN = "thin"  # leave requests out at random: bursts get lower
    RESAMPLE = "resample"  # draw requests, and let them arrive by a process of its own


@dataclass(frozen=True, slots=True)
class Ramp:
    """The rate goes from `start` to `end` requests a second within `duration_s`, then stays. is_exponential: by
    equal factors instead of equal steps."""

    start: float
    end: float
    duration_s: float
    is_exponential: bool = False

    def times(self, unit: Values) -> Values:
        """Instants at which the expected count reaches `unit`, the instants of a process at rate 1."""
        if self.start == self.end:
            return unit / self.start
        at_end = self._count(self.duration_s)
        inside = self._inverse(np.minimum(unit, at_end))
        return np.where(unit <= at_end, inside, self.duration_s + (unit - at_end) / self.end)

    def _count(self, time_s: float) -> float:
        if self.is_exponential:
            return float((self.start * (np.exp(self._growth * time_s) - 1)) / self._growth)
        return self.start * time_s + (self.end - self.start) * time_s**2 / (2 * self.duration_s)

    def _inverse(self, count: Values) -> Values:
        if self.is_exponential:
            return np.log1p(count * self._growth / self.start) / self._growth
        slope = (self.end - self.start) / self.duration_s
        # start t + slope t^2 / 2 = count, by the form of the root that stays exact for a small slope
        return 2 * count / (self.start + np.sqrt(np.maximum(self.start**2 + 2 * slope * count, 0)))

    @property
    def _growth(self) -> float:
        return float(np.log(self.end / self.start)) / self.duration_s


def unit_arrivals(count: int, burstiness: float, seed: int) -> Values:
    """Instants of a process at rate 1: intervals are gamma with this shape; 1 is Poisson, less is burstier."""
    random = np.random.default_rng([seed, 0xA221])
    if burstiness == 1.0:
        intervals = random.exponential(1.0, count)
    else:
        intervals = random.gamma(burstiness, 1.0 / burstiness, count)
    return np.cumsum(intervals)


def arrivals(count: int, rate: float, burstiness: float, seed: int) -> Values:
    """rate: requests a second."""
    return unit_arrivals(count, burstiness, seed) / rate


def arrivals_within(duration_s: float, ramp: Ramp, burstiness: float, seed: int) -> Values:
    """All instants before `duration_s`; how many that are is chance."""
    expected = max(ramp.start, ramp.end) * duration_s
    count = 64 + int(expected + 8 * np.sqrt(expected / min(burstiness, 1.0)))
    while True:
        times = ramp.times(unit_arrivals(count, burstiness, seed))
        if times[-1] >= duration_s:
            return times[times < duration_s]
        count *= 2


def scaled(times_s: Values, rate: float, scaling: Scaling, seed: int) -> tuple[Values, list[int]]:
    """A trace's instants, sorted, at a mean rate of `rate`, and which of its requests they are of.

    Raises ConfigError where requests would have to be left out to get more of them.
    """
    own_rate = mean_rate(times_s)
    everything = list(range(len(times_s)))
    if scaling is Scaling.COMPRESS:
        return times_s * (own_rate / rate), everything
    random = np.random.default_rng([seed, 0x5CA1])
    if scaling is Scaling.THIN:
        if rate > own_rate * (1 + _SAME):
            raise ConfigError(
                f"a trace of {own_rate:.3g} requests/s cannot be thinned to {rate:.3g}: state a lower rate, or "
                "--rate-scaling compress or resample"
            )
        kept = [index for index in everything if random.random() < rate / own_rate]
        return times_s[kept], kept
    picks = random.integers(0, len(times_s), len(times_s))
    return arrivals(len(times_s), rate, 1.0, seed), [int(pick) for pick in picks]


def mean_rate(times_s: Values) -> float:
    """Requests a second of a trace: intervals over time."""
    span = float(times_s[-1] - times_s[0]) if len(times_s) > 1 else 0.0
    return (len(times_s) - 1) / span if span > 0 else 1.0
