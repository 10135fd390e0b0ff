"""Limits that every request shall keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noria.bench.certificate import Trials
from noria.bench.outcome import Outcome, Status
from noria.bench.stats import long_run_count
from noria.config.errors import ConfigError

# Pairs of TTFT and time per output token in ms, as guidellm names them.
PRESETS = {"chat": (200.0, 50.0), "rag": (300.0, 100.0), "code": (500.0, 150.0)}
_KEYS = ("ttft", "tpot", "e2el")
# How near to its limits a request came matters near them alone: that what is far below or far above them hangs together
# says nothing of how the bad ones do. A floor of a half would be too high: queues at the edge would pass too often.
_LEAST_STRESS, _MOST_STRESS = 0.1, 2.0
_TAIL = 0.8  # more of a run would be far from the limit, less too few to tell how they hang together
_ROUNDING = 1e-6  # relative: what is no nearer to its limit than by this is as near
_LEAST_LATE = 5  # to tell anything of how those that were late hang together


def clipped(stress: float) -> float:
    """As it counts: see tail_count."""
    return min(max(stress, _LEAST_STRESS), _MOST_STRESS)


def tail_count(stress: Sequence[float]) -> float:
    """How many independent requests tell as much of how often the limit is missed.

    stress: how near each came to its limit, 1 is at it. What is counted is not how the stress hangs together, but
    whether it is among the highest fifth (or beyond the limit, where more are): what is late hangs together as those
    do, while a latency that wanders far below its limit says nothing of it. Where some were late, how they themselves
    hang together counts, if that is more. tests/tuning/test_limits.py keeps it honest on queues.
    """
    values = np.array(stress, dtype=np.float64)
    if not len(values):
        return 0.0
    is_late = values > 1.0
    is_high = values > (1 + _ROUNDING) * min(float(np.quantile(values, _TAIL)), 1.0)
    high = long_run_count(is_high.astype(np.float64))
    if is_late.sum() < _LEAST_LATE:
        return high
    return min(high, long_run_count(is_late.astype(np.float64)))


@dataclass(frozen=True, slots=True)
class Slo:
    """Seconds; infinite where there is no limit. Times count from the intended arrival."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2el_s: float = math.inf

    @property
    def is_stated(self) -> bool:
        return min(self.ttft_s, self.tpot_s, self.e2el_s) < math.inf

    def is_good(self, outcome: Outcome) -> bool:
        """An answer of one token has no time per output token, so it keeps that limit."""
        if not outcome.is_ok:
            return False
        return (
            outcome.ttft_slo_s <= self.ttft_s
            and (outcome.tpot_s or 0.0) <= self.tpot_s
            and outcome.e2el_slo_s <= self.e2el_s
        )

    def stress(self, outcome: Outcome) -> float:
        """How near it came to its limits: 1 is at one. Clipped."""
        if not outcome.is_ok:
            return _MOST_STRESS
        ratios = (
            outcome.ttft_slo_s / self.ttft_s,
            (outcome.tpot_s or 0.0) / self.tpot_s,
            outcome.e2el_slo_s / self.e2el_s,
        )
        return clipped(max(ratios))

    def stress_so_far(self, waited_s: float, has_token: bool) -> float:
        """Of a request that has not ended: above 1 it can keep the limits no more. waited_s: since its arrival."""
        waits = 0.0 if has_token else waited_s / self.ttft_s
        return clipped(max(waits, waited_s / self.e2el_s))

    def words(self) -> str:
        parts = (("TTFT", self.ttft_s), ("TPOT", self.tpot_s), ("E2E", self.e2el_s))
        return ", ".join(f"{name} <= {limit * 1e3:g} ms" for name, limit in parts if limit < math.inf)


def parse_slo(words: Sequence[str]) -> Slo:
    """Of ttft:500 tpot:50 e2el:10000, or a preset's name. Raises ConfigError."""
    limits: dict[str, float] = {}
    for word in words:
        if word in PRESETS:
            limits["ttft"], limits["tpot"] = PRESETS[word]
            continue
        key, _, value = word.partition(":")
        try:
            limits[key] = float(value)
        except ValueError:
            limits[key] = math.nan
        if key not in _KEYS or not limits[key] > 0:
            raise ConfigError(
                f"slo {word!r} must be one of {', '.join(PRESETS)}, or {', '.join(_KEYS)} with a limit in ms, as in "
                f"ttft:500"
            )
    return Slo(*(limits.get(key, math.inf) / 1e3 for key in _KEYS))


@dataclass(frozen=True, slots=True)
class Decided:
    """Requests in the order of arrival, up to the first whose fate is open: is it bad, and its stress, one each."""

    is_bad: tuple[bool, ...]
    stress: tuple[float, ...]

    @property
    def trials(self) -> Trials:
        """How many independent requests they tell as much as, and of those the same share of bad ones."""
        count = tail_count(self.stress)
        return Trials(sum(self.is_bad) / max(1, len(self.is_bad)) * count, count)


def decided(
    outcomes: Sequence[Outcome], open_arrivals: Sequence[tuple[int, float, bool]], slo: Slo, now_s: float
) -> Decided:
    """What may be judged now. Those that ended first are not those that came first: to judge by them would favour the
    quick. open_arrivals: as Generator's; one that has missed its limit already is decided too.
    """
    fates = [
        (one.arrival_s, not slo.is_good(one), slo.stress(one))
        for one in outcomes
        if one.status is not Status.CUT
    ]
    first_open_s = math.inf
    for _, arrival_s, has_token in open_arrivals:
        stress = slo.stress_so_far(now_s - arrival_s, has_token)
        if stress > 1:
            fates.append((arrival_s, True, stress))
        else:
            first_open_s = min(first_open_s, arrival_s)
    known = sorted(fate for fate in fates if fate[0] < first_open_s)
    return Decided(tuple(is_bad for _, is_bad, _ in known), tuple(stress for _, _, stress in known))
