"""A probe: a load at one rate, until it is certain whether the limits are kept, and what was seen on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from noria.bench.certificate import LEAST_TO_JUDGE, Verdict
from noria.bench.stats import Interval

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
    num_effective independent trials of the limit that lacks most of what it needs. look: how often was looked.
    num_needed: effective trials that would have been enough, were the share of late ones the same; None for none.
    note: what makes it doubtful. num_rounds: how often the workload began. is_settled: the load lasted long enough to
    keep a limit on the TTFT, which did not rise any more.
    """

    rate: float
    verdict: Verdict
    margins: Mapping[str, float]
    num_requests: int
    num_effective: float = 0.0
    bad: float = 0.0
    look: int = 1
    num_needed: int | None = None
    figures: Figures = field(default_factory=Figures)
    note: str = ""
    num_rounds: int = 1
    is_settled: bool = True

    @property
    def margin(self) -> float:
        """Of the limit that is nearest to being missed, or missed most."""
        return max(self.margins.values())

    @property
    def missing_s(self) -> float:
        """For how much longer it would have had to last to pass, were the rest like what came. Infinite where nothing
        would do."""
        if self.num_needed is None or not self.num_effective:
            return math.inf
        return max(0.0, self.num_needed / self.num_effective - 1) * self.num_requests / self.rate

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
