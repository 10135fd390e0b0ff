"""The certificate of a service level: sequential, so that a clear case ends after some sixty requests.

t of n requests are late or failed, at least the share p shall be good. PASS where so few bad ones are unlikely
(at most 1 - c) if only p were good, FAIL where so many are; else more requests are needed. (MLPerf's early stopping,
without its tolerance.) Each look at the data spends a part of the error: alpha_k = alpha / (k (k + 1)), which sums
to alpha over all looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from noria.bench.stats import binomial_cdf, binomial_upper_tail

GROWTH = 1.35  # of the count from one look to the next


class Verdict(str, Enum):
    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a look said. target: share that shall be good. num_effective: independent requests that tell as much."""

    verdict: Verdict
    target: float
    confidence: float
    num_requests: int
    num_effective: int
    num_bad: int
    look: int


def judge(num_bad: int, count: int, target: float, alpha: float) -> Verdict:
    """The verdict on `count` independent requests at an error of `alpha`."""
    if count <= 0:
        return Verdict.UNDECIDED
    if binomial_cdf(num_bad, count, 1 - target) <= alpha:
        return Verdict.PASS
    if binomial_upper_tail(num_bad, count, 1 - target) <= alpha:
        return Verdict.FAIL
    return Verdict.UNDECIDED


def spent(alpha: float, look: int) -> float:
    """The part of the error that a look may spend, the first being 1."""
    return alpha / (look * (look + 1))


def minimum_count(num_bad: int, target: float, alpha: float) -> int:
    """The fewest requests, `num_bad` of them bad, that pass in one look."""
    high = num_bad + 1
    while binomial_cdf(num_bad, high, 1 - target) > alpha:
        high *= 2
    low = max(num_bad, high // 2)
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_cdf(num_bad, middle, 1 - target) > alpha:
            low = middle
        else:
            high = middle
    return high


@dataclass
class Sequential:
    """Looks at a growing run. Ask `is_due` with the requests known so far, and `look` when it is."""

    target: float
    confidence: float
    num_looks: int = 0
    next_look: int = 0

    def __post_init__(self) -> None:
        self.next_look = minimum_count(0, self.target, self._alpha(1))

    def is_due(self, count: int) -> bool:
        return count >= self.next_look

    def look(self, num_bad: int, count: int, num_effective: float) -> Certificate:
        """Spend the next part of the error. num_effective: at most `count`; bad ones are scaled with it, upwards."""
        self.num_looks += 1
        self.next_look = math.ceil(max(count, self.next_look) * GROWTH)
        effective = max(1, min(count, math.floor(num_effective)))
        # A scaled count of bad ones is rounded against the claim that is made, so it is tried both ways.
        scaled = num_bad * effective / count if count else 0.0
        alpha = self._alpha(self.num_looks)
        passed = judge(math.ceil(scaled), effective, self.target, alpha)
        failed = judge(math.floor(scaled), effective, self.target, alpha)
        verdict = Verdict.UNDECIDED
        if Verdict.PASS is passed:
            verdict = Verdict.PASS
        elif Verdict.FAIL is failed:
            verdict = Verdict.FAIL
        return Certificate(verdict, self.target, self.confidence, count, effective, num_bad, self.num_looks)

    def _alpha(self, look: int) -> float:
        return spent(1 - self.confidence, look)


def looks(sequential: Sequential, most: int) -> Iterator[int]:
    """The counts at which a run of at most `most` requests is looked at; call `look` at each."""
    while sequential.next_look <= most:
        yield sequential.next_look
