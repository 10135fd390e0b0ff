"""Whether a run was in a steady state, and from when on: warm-up, queue balance, over-saturation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from noria.bench.stats import Values, rank_correlation

_BATCH = 5  # the 5 of MSER-5
_MOST_CUT = 0.5  # of the run; a minimum further out says that there is no steady state
_NUM_BATCH_MEANS = 20
_TREND_LIMIT = 0.6  # Spearman's, of 20 batch means: beyond it by chance in about 1 of 200 steady runs
_SATURATION_CONFIDENCE_T = 1.645
_SATURATION_WINDOW_S = 120.0
_SATURATION_FROM_S = 30.0
_SATURATION_TTFT_S = 2.5


def warm_up_count(values: Values) -> int:
    """How many values at the start to leave out, by MSER-5: the cut whose rest has the least error of its mean.

    Source: K. P. White, "An effective truncation heuristic for bias reduction in simulation output" (1997).
    """
    num_batches = len(values) // _BATCH
    if num_batches < 4:
        return 0
    means = values[: num_batches * _BATCH].reshape(num_batches, _BATCH).mean(axis=1)
    most = max(1, int(num_batches * _MOST_CUT))
    left = num_batches - np.arange(most)
    # sums over means[cut:], for every cut
    sums = np.cumsum(means[::-1])[::-1][:most]
    squares = np.cumsum((means**2)[::-1])[::-1][:most]
    errors = (squares - sums**2 / left) / left**2
    return int(np.argmin(errors)) * _BATCH


def trend(values: Values) -> float:
    """Spearman's correlation of batch means with time: near 0 in a steady state, 1 for a growing queue."""
    if len(values) < 2 * _NUM_BATCH_MEANS:
        return 0.0
    means = np.array([batch.mean() for batch in np.array_split(values, _NUM_BATCH_MEANS)])
    return rank_correlation(means, np.arange(_NUM_BATCH_MEANS, dtype=np.float64))


def is_stationary(trend_value: float) -> bool:
    return abs(trend_value) <= _TREND_LIMIT


@dataclass(frozen=True, slots=True)
class Little:
    """Little's law over a window: requests inside on average, and what rate times time inside says."""

    num_inside: float
    rate: float
    mean_time_s: float

    @property
    def error(self) -> float:
        """|L - lambda W| / L; 0 for an empty window."""
        if self.num_inside <= 0:
            return 0.0
        return abs(self.num_inside - self.rate * self.mean_time_s) / self.num_inside


def little(begins_s: Values, ends_s: Values, window: tuple[float, float]) -> Little:
    """Of requests that were inside from begins_s to ends_s, over the window [w0, w1] of seconds."""
    low, high = window
    span = high - low
    if span <= 0 or not len(begins_s):
        return Little(0.0, 0.0, 0.0)
    inside = np.clip(np.minimum(ends_s, high) - np.maximum(begins_s, low), 0, None)
    came = (begins_s >= low) & (begins_s < high)
    times = (ends_s - begins_s)[came]
    return Little(
        float(inside.sum()) / span, float(came.sum()) / span, float(times.mean()) if came.any() else 0.0
    )


def is_over_saturated(times_s: Values, concurrency: Values, ttfts_s: Values) -> bool:
    """More comes than can be served: concurrency and time to first token both grow, by regression, with a margin.

    times_s: instants of the observations; only the last two minutes count, and nothing before 30 s have passed.
    """
    if not len(times_s) or times_s[-1] - times_s[0] < _SATURATION_FROM_S:
        return False
    recent = times_s >= times_s[-1] - _SATURATION_WINDOW_S
    if float(ttfts_s[recent].mean()) < _SATURATION_TTFT_S:
        return False
    return all(_grows(times_s[recent], series[recent]) for series in (concurrency, ttfts_s))


def _grows(times_s: Values, values: Values) -> bool:
    count = len(times_s)
    if count < 5:
        return False
    centred = times_s - times_s.mean()
    power = float(centred @ centred)
    if power <= 0:
        return False
    slope = float(centred @ values) / power
    rest = values - values.mean() - slope * centred
    error = math.sqrt(float(rest @ rest) / (count - 2) / power)
    return slope - _SATURATION_CONFIDENCE_T * error > 0
