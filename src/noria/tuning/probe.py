"""A probe: a load at one rate, until it is certain whether the limits are kept, and what was seen on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from noria.bench.certificate import GROWTH, Verdict, judge, minimum_count, spent
from noria.bench.stats import Interval
from noria.tuning.limits import Evidence

LEAST_TO_JUDGE = 12  # requests: of fewer nothing is said
_ALIKE = 0.005  # relative
_NONE = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a load was like: requests and output tokens a second, latencies in seconds at the limits' share, shares."""

    goodput: Interval = _NONE
    tokens_per_s: float = math.nan
    ttft: Interval = _NONE
    itl: Interval = _NONE
    kv_util_p99: float = math.nan
    preempt_rate: float = math.nan
    num_refused: int = 0


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """rate: requests a second. margins: log(quantile / limit) of each limit, below 0 where it is kept. bad: of the
    num_effective independent trials of the limit that binds. look: how often was looked. note: what makes it doubtful.
    num_rounds: how often the workload began. is_settled: the load lasted long enough to keep a limit on the TTFT, which
    did not rise any more.
    """

    rate: float
    verdict: Verdict
    margins: Mapping[str, float]
    num_requests: int
    num_effective: float = 0.0
    bad: float = 0.0
    look: int = 1
    figures: Figures = field(default_factory=Figures)
    note: str = ""
    num_rounds: int = 1
    is_settled: bool = True

    @property
    def margin(self) -> float:
        """Of the limit that is nearest to being missed, or missed most."""
        return max(self.margins.values())

    @property
    def binding(self) -> str:
        """Which limit that is."""
        return max(self.margins, key=lambda name: self.margins[name])


def judged_by_figures(found: ProbeResult) -> ProbeResult:
    """A verdict where none was certain: good enough to rank by, no promise.

    What ended before a queue could grow, or while one grew, stays open: such figures are good at any rate.
    """
    if found.verdict is not Verdict.UNDECIDED or found.num_requests < LEAST_TO_JUDGE:
        return found
    if found.margin <= 0 and not found.is_settled:
        return found
    verdict = Verdict.PASS if found.margin <= 0 else Verdict.FAIL
    note = "; ".join(filter(None, ("by its figures alone", found.note)))
    return replace(found, verdict=verdict, note=note)


def are_alike(one: ProbeResult, other: ProbeResult) -> bool:
    """Whether two settings differ in nothing that a client sees, at one rate under one load."""
    if one.verdict is not other.verdict or any(
        abs(margin - other.margins[name]) > _ALIKE for name, margin in one.margins.items()
    ):
        return False
    mine, theirs = np.array(_client_sees(one.figures)), np.array(_client_sees(other.figures))
    return np.allclose(mine, theirs, rtol=_ALIKE, atol=0.0, equal_nan=True)


def _client_sees(figures: Figures) -> tuple[float, ...]:
    return (figures.goodput.value, figures.tokens_per_s, figures.ttft.value, figures.itl.value)


class Prober(Protocol):
    def probe(self, rate: float) -> ProbeResult:
        """Raises NoriaError where no load can be made at all."""
        ...


class CertainProber(Protocol):
    def certify(self, rate: float, confidence: float) -> ProbeResult:
        """A probe whose PASS and FAIL are each true at this confidence. Raises NoriaError."""
        ...


def least_to_pass(share: float, confidence: float) -> int:
    """Of fewer requests nothing is certain, even where none of them is late."""
    return minimum_count(0, share, spent(1 - confidence, 1))


class Certifier:
    """One sequential verdict on several limits.

    PASS where each of them passes: if one is missed in truth, it passes by chance no more often than 1 - confidence, so
    nothing has to be shared among them. FAIL where one fails at its part of that. The two are claims of their own, each
    with an error of its own to spend, so what is far beyond a limit fails long before anything could pass.

    Looks come at counts of requests that are known beforehand. (To look once there are enough independent ones would
    spend less, and is wrong: how many there are is estimated, and looks that come when the estimate is high passed
    queues that miss their limit in 12 to 30 of 100 cases.)
    """

    def __init__(self, share: float, confidence: float) -> None:
        self._share = share
        alpha = 1 - confidence
        self._passing = _Spending(alpha, least_to_pass(share, confidence))
        self._failing = _Spending(alpha, LEAST_TO_JUDGE)

    @property
    def num_looks(self) -> int:
        return self._passing.num_looks + self._failing.num_looks

    def is_due(self, count: int) -> bool:
        """count: requests that are decided."""
        return count >= min(self._passing.next_look, self._failing.next_look)

    def look(self, count: int, found: Mapping[str, Evidence]) -> Verdict:
        """found: of each limit."""
        if not found:
            return Verdict.UNDECIDED
        may_fail, may_pass = self._failing.spend(count), self._passing.spend(count)
        if may_fail and any(self._fails(one, may_fail / len(found)) for one in found.values()):
            return Verdict.FAIL
        if may_pass and all(self._passes(one, may_pass) for one in found.values()):
            return Verdict.PASS
        return Verdict.UNDECIDED

    def last_look(self, count: int, found: Mapping[str, Evidence]) -> Verdict:
        """Where nothing more will come: whether one is due or not, it is the last that spends of the error."""
        if count >= LEAST_TO_JUDGE:
            self._passing.next_look = self._failing.next_look = 0
        return self.look(count, found)

    def _passes(self, one: Evidence, alpha: float) -> bool:
        """Late ones are a share of the effective trials, so their number is rounded against the claim."""
        return judge(math.ceil(one.bad), math.floor(one.num_effective), self._share, alpha) is Verdict.PASS

    def _fails(self, one: Evidence, alpha: float) -> bool:
        return judge(math.floor(one.bad), math.floor(one.num_effective), self._share, alpha) is Verdict.FAIL


class _Spending:
    """The looks of one claim."""

    def __init__(self, alpha: float, first: int) -> None:
        self.num_looks = 0
        self.next_look = first
        self._alpha = alpha

    def spend(self, count: int) -> float:
        """The error that this look may make; 0 where none is due."""
        if count < self.next_look:
            return 0.0
        self.num_looks += 1
        self.next_look = math.ceil(count * GROWTH)
        return spent(self._alpha, self.num_looks)
