"""The certificate of a service level: sequential, so that a clear case ends after some hundred requests.

t of n requests are late or failed, at least the share p shall be good. PASS where so few bad ones are unlikely
(at most 1 - c) if only p were good, FAIL where so many are; else more requests are needed. (MLPerf's early stopping,
without its tolerance.) n counts effective requests: neighbours wait together, so that many tell as much as few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from noria.bench.stats import binomial_cdf, binomial_upper_tail

LEAST_TO_JUDGE = 12  # requests: of fewer nothing is said
_GROWTH = 1.35  # of the count from one look to the next
# Of the error. The rest is for what the binomial does not know: that the number of effective requests is an estimate.
# (With all of it spent, queues that just miss their limit passed in up to 7 of 100 runs, instead of 5.)
_SPENT = 0.3
_ON_THE_WAY = 0.5  # of that may be spent before the end; a look that ends a run so has at least the rest
_MOST_NEEDED = 5000  # effective requests: whether so many would be enough is not asked


class Verdict(str, Enum):
    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"


class Counted(Protocol):
    """What a run says of one limit: `bad` of `num_effective` independent trials (a share of them, so no whole
    number)."""

    @property
    def bad(self) -> float: ...

    @property
    def num_effective(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Trials:
    bad: float
    num_effective: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a look said. target: share that shall be good. num_bad: of num_requests. num_effective: independent
    requests that tell as much. num_needed: of those, for PASS, were the share of bad ones to stay; None for none."""

    verdict: Verdict
    target: float
    confidence: float
    num_requests: int
    num_effective: int
    num_bad: int
    look: int
    num_needed: int | None = None


def count_words(told: Certificate) -> str:
    """Requests as they came, and what they tell as much as."""
    needed = f"{told.num_needed} needed" if told.num_needed is not None else "no number would do"
    return (
        f"{told.num_bad} of {told.num_requests} requests bad, which tell as much as {told.num_effective} independent "
        f"ones; {needed}"
    )


def judge(num_bad: int, count: int, target: float, alpha: float) -> Verdict:
    """The verdict on `count` independent requests at an error of `alpha`."""
    if count <= 0:
        return Verdict.UNDECIDED
    if binomial_cdf(num_bad, count, 1 - target) <= alpha:
        return Verdict.PASS
    if binomial_upper_tail(num_bad, count, 1 - target) <= alpha:
        return Verdict.FAIL
    return Verdict.UNDECIDED


def spent(alpha: float, number: int) -> float:
    """The part of an error that the first, second, ... of any number of claims may spend: they sum to alpha."""
    return alpha / (number * (number + 1))


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


def needed_count(bad_share: float, target: float, alpha: float) -> int | None:
    """The fewest requests that pass in one look where such a share of them is bad; None for none, or too many."""
    most_bad = math.floor(_MOST_NEEDED * (1 - target))
    # With more bad ones the share that is allowed only grows: [0, low) are too few, [high, most_bad] are enough.
    low, high = 0, most_bad + 1
    while low < high:
        middle = (low + high) // 2
        is_enough = bad_share * minimum_count(middle, target, alpha) <= middle
        low, high = (low, middle) if is_enough else (middle + 1, high)
    return None if high > most_bad else minimum_count(high, target, alpha)


class Certifier:
    """One sequential verdict on one or several limits.

    PASS where each of them passes: if one is missed in truth, it passes by chance no more often than 1 - confidence, so
    nothing has to be shared among them. FAIL where one fails at its part of that. The two are claims of their own, each
    with an error of its own to spend, so what is far beyond a limit fails long before anything could pass.

    Looks come at counts of requests that are known beforehand: of alpha, three tenths of the error, the k-th spends
    alpha / 2 k (k + 1), and the one that ends the run all that is left, which is at least a half. (To look once there
    are enough independent ones would spend less, and is wrong: how many there are is estimated, and looks that come
    when the estimate is high passed queues that miss their limit in 12 to 30 of 100 cases.)
    """

    def __init__(self, share: float, confidence: float) -> None:
        self._share = share
        alpha = _SPENT * (1 - confidence)
        self._passing = _Spending(alpha, _first_to_pass(share, alpha))
        self._failing = _Spending(alpha, LEAST_TO_JUDGE)

    @property
    def num_looks(self) -> int:
        return self._passing.num_looks + self._failing.num_looks

    @property
    def last_alpha(self) -> float:
        """The error that a last look, now, may make when it says PASS."""
        return self._passing.left

    def is_due(self, count: int) -> bool:
        """count: requests that are decided."""
        return count >= min(self._passing.next_look, self._failing.next_look)

    def look(self, count: int, found: Mapping[str, Counted]) -> Verdict:
        """found: of each limit."""
        return self._judged(found, self._passing.spend(count), self._failing.spend(count))

    def last_look(self, count: int, found: Mapping[str, Counted]) -> Verdict:
        """Where nothing more will come, whether one is due or not."""
        if count < LEAST_TO_JUDGE:
            return Verdict.UNDECIDED
        return self._judged(found, self._passing.spend_rest(), self._failing.spend_rest())

    def num_needed(self, one: Counted) -> int | None:
        """Effective requests for a last look to say PASS of a limit, were the share of bad ones to stay; None where as
        many as can be asked for are not enough."""
        share = one.bad / one.num_effective if one.num_effective else 0.0
        return needed_count(share, self._share, self.last_alpha)

    def _judged(self, found: Mapping[str, Counted], may_pass: float, may_fail: float) -> Verdict:
        """may_pass, may_fail: the errors of either verdict; 0 where it is not to be given."""
        if not found:
            return Verdict.UNDECIDED
        if may_fail and any(self._fails(one, may_fail / len(found)) for one in found.values()):
            return Verdict.FAIL
        if may_pass and all(self._passes(one, may_pass) for one in found.values()):
            return Verdict.PASS
        return Verdict.UNDECIDED

    def _passes(self, one: Counted, alpha: float) -> bool:
        """Bad ones are a share of the effective trials, so their number is rounded against the claim."""
        return judge(math.ceil(one.bad), math.floor(one.num_effective), self._share, alpha) is Verdict.PASS

    def _fails(self, one: Counted, alpha: float) -> bool:
        return judge(math.floor(one.bad), math.floor(one.num_effective), self._share, alpha) is Verdict.FAIL


class _Spending:
    """The looks of one claim. left: of its error."""

    def __init__(self, alpha: float, first: int) -> None:
        self.num_looks = 0
        self.next_look = first
        self.left = alpha
        self._alpha = alpha

    def spend(self, count: int) -> float:
        """The error that this look may make; 0 where none is due."""
        if count < self.next_look:
            return 0.0
        self.num_looks += 1
        self.next_look = math.ceil(count * _GROWTH)
        part = spent(_ON_THE_WAY * self._alpha, self.num_looks)
        self.left -= part
        return part

    def spend_rest(self) -> float:
        """Of the look after which there is none."""
        self.num_looks += 1
        return self.left


def _first_to_pass(share: float, alpha: float) -> int:
    """Of fewer requests none passes before the end."""
    return minimum_count(0, share, spent(_ON_THE_WAY * alpha, 1))


def alpha_at_end(share: float, confidence: float, count: int) -> float:
    """The error that the last look at a run of so many requests may make when it says PASS."""
    alpha = _SPENT * (1 - confidence)
    passing = _Spending(alpha, _first_to_pass(share, alpha))
    while passing.next_look < count:
        passing.spend(passing.next_look)
    return passing.left


def least_to_pass(share: float, confidence: float) -> int:
    """Of fewer requests nothing is certain, even where none of them is bad."""
    return minimum_count(0, share, _SPENT * (1 - confidence))
