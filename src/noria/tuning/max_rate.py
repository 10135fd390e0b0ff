"""The highest rate at which a setting keeps its limits, by few probes.

From a start the rate is raised or lowered until one rate passes and another fails. Between them the next one is where
the margin, log(quantile / limit) of the limit that binds, is foretold to be 0: by the margins of all probes, made to
never fall with the rate (isotonic regression: pool adjacent violators), and a monotone cubic through them (PCHIP;
Fritsch and Carlson 1980). It is kept to the middle 60 % of what is left, so that the bracket shrinks whatever the
margins are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from noria.bench.certificate import Verdict
from noria.tuning.probe import Prober, ProbeResult

_STEP, _WIDE_STEP = 1.25, 2.0
_WIDE_MARGIN = math.log(2.0)  # further from its limits than this, a setting is far from its highest rate
_KEPT = 0.6  # of a bracket, in its middle, is where the next rate is looked for
_MOST_UNDECIDED = 2
_CLIFF_JUMP = math.log(2.0)  # of the margin within the last bracket
_CLIFF_WIDTH = 1.13  # of the bracket; within a wider one any curve may rise so far


class Shape(str, Enum):
    SMOOTH = "smooth"  # latency grows up to the limit: a little less load, a little more room
    CLIFF = "cliff"  # it is fine, and then it is not: keep a distance


class Ended(str, Enum):
    """Why the search is over."""

    PRECISE = "precise"
    UNDECIDED = "undecided"  # nearer to the limit than the requests of a probe can tell
    PROBES = "probes"  # as many as were allowed
    TIME = "time"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """precision: of the bracket, as its width by its lower end. can_go_on: False once the time is over."""

    precision: float = 0.05
    most_probes: int = 12
    can_go_on: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class MaxRate:
    """Requests a second. passed: the highest rate that did, 0 where none; failed: the lowest above it, infinite where
    none was found. estimate: where the limit is foretold to be met exactly."""

    passed: float
    failed: float
    estimate: float
    binding: str
    shape: Shape
    ended: Ended
    probes: tuple[ProbeResult, ...]

    @property
    def best(self) -> ProbeResult | None:
        """The probe at `passed`; None where no rate did."""
        at_passed = (one for one in self.probes if one.rate == self.passed)
        return next((one for one in at_passed if one.verdict is Verdict.PASS), None)


def find_max_rate(
    prober: Prober, start: float, options: SearchOptions, known: Sequence[ProbeResult] = ()
) -> MaxRate:
    """start: requests a second, from where it is looked upwards or downwards. known: earlier probes of the setting.

    Raises NoriaError.
    """
    probes = list(known)
    rate: float | None = start
    while rate is not None:
        ended = _reason(probes, options)
        if ended is not None:
            return conclude(probes, ended)
        probes.append(prober.probe(rate))
        rate = next_rate(probes, options.precision)
    return conclude(probes, Ended.PRECISE)


def _reason(probes: Sequence[ProbeResult], options: SearchOptions) -> Ended | None:
    """Why there shall be no more probes; there is always one."""
    if not probes:
        return None
    if sum(one.verdict is Verdict.UNDECIDED for one in probes) >= _MOST_UNDECIDED:
        return Ended.UNDECIDED
    if len(probes) >= options.most_probes:
        return Ended.PROBES
    return None if options.can_go_on() else Ended.TIME


def bracket(probes: Sequence[ProbeResult]) -> tuple[float, float]:
    """The highest rate that passed below the lowest that failed, and that one; 0 and infinite where there is none.

    Where a rate failed below one that passed, the lower one is believed: a promise has to hold.
    """
    failed = min((one.rate for one in probes if one.verdict is Verdict.FAIL), default=math.inf)
    passed = max(
        (one.rate for one in probes if one.verdict is Verdict.PASS and one.rate < failed), default=0.0
    )
    return passed, failed


def next_rate(probes: Sequence[ProbeResult], precision: float) -> float | None:
    """Where to probe next; None when the bracket is as narrow as asked."""
    passed, failed = bracket(probes)
    if passed and failed / passed - 1 <= precision:
        return None
    if math.isinf(failed):
        top = max(probes, key=lambda one: one.rate)
        return top.rate * _factor(top)
    if not passed:
        bottom = min(probes, key=lambda one: one.rate)
        return bottom.rate / _factor(bottom)
    return _inside(probes, passed, failed)


def _factor(one: ProbeResult) -> float:
    return _WIDE_STEP if abs(one.margin) > _WIDE_MARGIN else _STEP


def _inside(probes: Sequence[ProbeResult], passed: float, failed: float) -> float:
    """In the middle part of the bracket, or of the wider side of a rate at which nothing could be decided."""
    low, high = math.log(passed), math.log(failed)
    open_at = [math.log(one.rate) for one in probes if one.verdict is Verdict.UNDECIDED]
    for at in (at for at in open_at if low < at < high):
        low, high = (low, at) if at - low > high - at else (at, high)
    edge = (high - low) * (1 - _KEPT) / 2
    return math.exp(min(max(math.log(root(probes)), low + edge), high - edge))


def root(probes: Sequence[ProbeResult]) -> float:
    """The rate whose margin is foretold to be 0; the nearest probed rate where all margins are on one side."""
    rates, margins = monotone_margins(probes)
    if margins[0] >= 0:
        return float(np.exp(rates[0]))
    if margins[-1] <= 0:
        return float(np.exp(rates[-1]))
    above = int(np.argmax(margins > 0))
    low, high = rates[above - 1], rates[above]
    curve = PchipInterpolator(rates, margins)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle) <= 0 else (low, middle)
    return float(np.exp((low + high) / 2))


def monotone_margins(probes: Sequence[ProbeResult]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the rates, ascending, and the margins there, made to never fall. A probe weighs by its requests."""
    by_rate: dict[float, list[ProbeResult]] = {}
    for one in probes:
        by_rate.setdefault(math.log(one.rate), []).append(one)
    rates = np.array(sorted(by_rate))
    margins = np.array([np.mean([one.margin for one in by_rate[rate]]) for rate in rates])
    weights = np.array([sum(max(1, one.num_requests) for one in by_rate[rate]) for rate in rates], float)
    return rates, isotonic_regression(margins, weights=weights).x


def conclude(probes: Sequence[ProbeResult], ended: Ended) -> MaxRate:
    passed, failed = bracket(probes)
    nearest = min(probes, key=lambda one: abs(one.margin))
    at_edge = [one for one in probes if one.rate in (passed, failed)]
    binding = max(at_edge or [nearest], key=lambda one: one.rate).binding
    estimate = min(max(root(probes), passed), failed)
    return MaxRate(
        passed,
        failed,
        estimate,
        binding,
        _shape(probes, passed, failed),
        ended,
        tuple(probes),
    )


def _shape(probes: Sequence[ProbeResult], passed: float, failed: float) -> Shape:
    """A cliff: from a rate that keeps its limits with room, the next is far beyond them.

    By the slope: within the bracket the margin jumps by a factor of two, and by three times what the slope of the
    probes that kept the limits foretells for so small a change of the rate.
    """
    kept = sorted((one for one in probes if one.rate <= passed), key=lambda one: one.rate)
    missed = [one for one in probes if one.rate == failed]
    if not kept or not missed or failed / passed > _CLIFF_WIDTH:
        return Shape.SMOOTH
    span = math.log(failed / passed)
    jump = missed[0].margin - kept[-1].margin
    foretold = 0.0
    if len(kept) > 1:
        before = kept[-2]
        slope = (kept[-1].margin - before.margin) / math.log(kept[-1].rate / before.rate)
        foretold = max(slope, 0.0) * span
    return Shape.CLIFF if jump > _CLIFF_JUMP and jump > 3 * foretold else Shape.SMOOTH
