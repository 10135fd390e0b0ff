"""What a load was like, from what became of its requests and from samples of the engine's state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from noria.bench.outcome import Outcome, Status
from noria.bench.stats import Interval, effective_count, quantile_interval
from noria.bench.target import Sample
from noria.tuning.limits import ItlStat, Limits
from noria.tuning.probe import Figures


def measure(
    outcomes: Sequence[Outcome], samples: Sequence[Sample], limits: Limits, begin_s: float
) -> Figures:
    """Of requests that came from begin_s on; those that the end of the run cut are left out."""
    came = [one for one in outcomes if one.arrival_s >= begin_s and one.status is not Status.CUT]
    answered = [one for one in came if one.is_ok]
    if not answered:
        return Figures(num_refused=_num_refused(came))
    span_s = max(one.arrival_s for one in came) - begin_s
    begins_s, ends_s = min(one.first_s for one in answered), max(one.end_s for one in answered)
    tokens = sum(one.num_output for one in answered)
    return Figures(
        goodput=_scaled(_share(_good(came, limits)), len(came) / span_s if span_s > 0 else math.nan),
        tokens_per_s=tokens / (ends_s - begins_s) if ends_s > begins_s else math.nan,
        ttft=quantile_interval(np.array([one.ttft_slo_s for one in answered]), limits.share),
        itl=quantile_interval(_token_times(answered, limits.itl_stat), limits.share),
        kv_util_p99=_kv_p99(samples),
        preempt_rate=_preempt_rate(samples, len(answered)),
        num_refused=_num_refused(came),
    )


def _good(came: Sequence[Outcome], limits: Limits) -> np.ndarray:
    """1 for a request with its first token in time and its time per token too: what its user would call good."""
    return np.array(
        [
            one.is_ok and one.ttft_slo_s <= limits.ttft_s and (one.tpot_s or 0.0) <= limits.itl_s
            for one in came
        ],
        dtype=np.float64,
    )


def _share(good: np.ndarray) -> Interval:
    """Wilson's interval, which has a width where all are good, on as many requests as tell something of their own."""
    count, share, z = max(1.0, effective_count(good)), float(good.mean()), NormalDist().inv_cdf(0.975)
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return Interval(share, centre - half, min(1.0, centre + half))


def _token_times(answered: Sequence[Outcome], stat: ItlStat) -> np.ndarray:
    if stat is ItlStat.TPOT:
        return np.array([one.tpot_s for one in answered if one.tpot_s is not None])
    return np.array([gap for one in answered for gap in one.token_gaps_s()])


def _scaled(interval: Interval, factor: float) -> Interval:
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor)


def _num_refused(came: Sequence[Outcome]) -> int:
    return sum(one.status is Status.REJECTED for one in came)


def _kv_p99(samples: Sequence[Sample]) -> float:
    """Weighted by time."""
    if len(samples) < 2:
        return math.nan
    ordered = sorted(samples, key=lambda one: one.kv_util)
    at = {id(one): after.time_s - one.time_s for one, after in pairwise(samples)}
    lasting = np.cumsum([at.get(id(one), 0.0) for one in ordered])
    return ordered[min(int(np.searchsorted(lasting, 0.99 * lasting[-1])), len(ordered) - 1)].kv_util


def _preempt_rate(samples: Sequence[Sample], num_answered: int) -> float:
    counts = [one.preemptions for one in samples if one.preemptions is not None]
    return (counts[-1] - counts[0]) / num_answered if counts else math.nan
