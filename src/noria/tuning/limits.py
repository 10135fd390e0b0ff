"""The limits that a load shall keep, and what a run says about each: two kinds of evidence, one verdict.

TTFT: the share of all requests that came whose first token was in time, from the intended arrival. Errors, refusals and
timeouts are late ones.

ITL, pooled: the share of all gaps between tokens. Gaps of one answer hang together, and so do those of answers that ran
at once, so gaps are no trials. A request is: the share of its gaps that are late lies in [0, 1], and of all that lie
there and have the mean p, a coin's throws vary most (Hoeffding 1963, whose bounds for such shares are the coin's own).
So a request tells at least as much as one throw. Requests with more gaps weigh more: n of them, with w_i gaps each,
tell as much as (sum w)^2 / sum w^2 equal ones (Kish). That neighbours hang together is counted by `tail_count`.

ITL, per request (tpot): the share of requests whose time per output token is in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from noria.bench.outcome import Outcome, Status
from noria.bench.slo import Slo, clipped, decided, tail_count
from noria.bench.stats import Interval, Values, quantile_interval

_LEAST_MARGIN, _MOST_MARGIN = math.log(0.02), math.log(50)
OpenArrivals = Sequence[tuple[int, float, bool]]


class ItlStat(str, Enum):
    POOLED = "pooled"
    TPOT = "tpot"


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds; infinite where there is no limit. share: of what must be within them, 0.95 for a P95."""

    ttft_s: float = math.inf
    itl_s: float = math.inf
    share: float = 0.95
    itl_stat: ItlStat = ItlStat.POOLED

    def by_name(self) -> dict[str, float]:
        """Those that there are."""
        limits = {"ttft": self.ttft_s, "itl": self.itl_s}
        return {name: limit for name, limit in limits.items() if limit < math.inf}

    def words(self) -> str:
        point = f"P{100 * self.share:g}"
        names = {"ttft": "TTFT", "itl": "ITL" if self.itl_stat is ItlStat.POOLED else "TPOT"}
        told = (f"{point} {names[name]} <= {limit * 1e3:g} ms" for name, limit in self.by_name().items())
        return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Evidence:
    """bad of num_effective independent trials were late (a share of them, so no whole number); quantile: of what is
    limited, in seconds, at Limits.share; infinite where requests failed so often. num_decided: requests it is of."""

    bad: float
    num_effective: float
    quantile: Interval
    limit_s: float
    num_decided: int = 0

    @property
    def margin(self) -> float:
        """log(quantile / limit): below 0 the limit is kept. Bounded."""
        if not self.quantile.value > 0:
            return _LEAST_MARGIN
        return min(max(math.log(self.quantile.value / self.limit_s), _LEAST_MARGIN), _MOST_MARGIN)


def evidence(
    outcomes: Sequence[Outcome],
    limits: Limits,
    open_arrivals: OpenArrivals = (),
    now_s: float = 0.0,
    begin_s: float = 0.0,
) -> dict[str, Evidence]:
    """Of each limit, by name. Of requests that came from begin_s on and are decided: see bench.slo.decided."""
    came = sorted((one for one in outcomes if one.status is not Status.CUT), key=lambda one: one.arrival_s)
    came = [one for one in came if one.arrival_s >= begin_s]
    still_open = [entry for entry in open_arrivals if entry[1] >= begin_s]
    return {
        name: _MAKERS[name](came, limits, still_open, now_s)
        for name in limits.by_name()
        if came or still_open
    }


def num_decided(
    outcomes: Sequence[Outcome], limits: Limits, open_arrivals: OpenArrivals, now_s: float, begin_s: float
) -> int:
    """The most requests that the evidence of any limit would be of, without making it: of twenty thousand requests that
    takes long."""
    came = [one.arrival_s for one in outcomes if one.status is not Status.CUT]
    first_open_s = math.inf
    for _, arrival_s, has_token in open_arrivals:
        if not has_token and now_s - arrival_s > limits.ttft_s:
            came.append(arrival_s)  # too late already
        elif arrival_s >= begin_s:
            first_open_s = min(first_open_s, arrival_s)
    return sum(begin_s <= arrival_s < first_open_s for arrival_s in came)


def _ttft(came: Sequence[Outcome], limits: Limits, still_open: OpenArrivals, now_s: float) -> Evidence:
    slo = Slo(ttft_s=limits.ttft_s)
    known = decided(came, still_open, slo, now_s)
    waited = [one.ttft_slo_s if one.is_ok else math.inf for one in came]
    waited += [
        now_s - arrival_s
        for _, arrival_s, has_token in still_open
        if not has_token and now_s - arrival_s > limits.ttft_s
    ]
    told = known.trials
    quantile = _quantile(waited, limits.share)
    return Evidence(told.bad, told.num_effective, quantile, limits.ttft_s, len(known.is_bad))


def _itl(came: Sequence[Outcome], limits: Limits, still_open: OpenArrivals, now_s: float) -> Evidence:
    if limits.itl_stat is ItlStat.TPOT:
        return _tpot(_before_open(came, still_open), limits)
    return _pooled(_before_open(came, still_open), limits)


def _before_open(came: Sequence[Outcome], still_open: OpenArrivals) -> list[Outcome]:
    """Those that came before the first that has not ended: to judge by those that ended would favour the quick."""
    first_open_s = min((arrival_s for _, arrival_s, _ in still_open), default=math.inf)
    return [one for one in came if one.arrival_s < first_open_s]


def _tpot(came: Sequence[Outcome], limits: Limits) -> Evidence:
    times = [(one.tpot_s or 0.0) if one.is_ok else math.inf for one in came]
    count = tail_count([clipped(time_s / limits.itl_s) for time_s in times])
    bad = sum(time_s > limits.itl_s for time_s in times)
    share = bad / max(1, len(times))
    return Evidence(share * count, count, _quantile(times, limits.share), limits.itl_s, len(times))


def _pooled(came: Sequence[Outcome], limits: Limits) -> Evidence:
    gaps = [_gaps_s(one) for one in came]
    gaps = [some for some in gaps if some]
    weights = np.array([len(some) for some in gaps], dtype=np.float64)
    if not gaps:
        return Evidence(0.0, 0.0, _quantile([], limits.share), limits.itl_s)
    late = np.array([sum(gap > limits.itl_s for gap in some) for some in gaps])
    # How near a request's gaps came to the limit is told by its own quantile.
    stress = [clipped(_rank(some, limits.share) / limits.itl_s) for some in gaps]
    equal = float(weights.sum() ** 2 / (weights**2).sum())
    count = equal * tail_count(stress) / len(gaps)
    pooled = [gap for some in gaps for gap in some]
    share = float(late.sum() / weights.sum())
    return Evidence(share * count, count, _quantile(pooled, limits.share), limits.itl_s, len(came))


def _gaps_s(one: Outcome) -> list[float]:
    """Of a request that failed, all gaps that were asked for were late."""
    return one.token_gaps_s() if one.is_ok else [math.inf] * max(0, one.num_asked - 1)


def _rank(values: list[float], share: float) -> float:
    """The least value that at least that share of values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _quantile(values: Sequence[float], share: float) -> Interval:
    """With infinite values among them, the quantile by rank, without interpolation."""
    numbers: Values = np.array(values, dtype=np.float64)
    if np.isfinite(numbers).all():
        return quantile_interval(numbers, share)
    value = _rank(list(values), share)
    return Interval(value, math.nan, math.nan)


_Maker = Callable[[Sequence[Outcome], Limits, OpenArrivals, float], Evidence]
_MAKERS: Mapping[str, _Maker] = {"ttft": _ttft, "itl": _itl}
