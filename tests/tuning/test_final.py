"""The last rates: one that will be certain first, then higher ones; on queues, no oftener false than allowed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest

from noria.bench.certificate import Certifier, Verdict, alpha_at_end, least_to_pass
from noria.bench.stats import Values
from noria.tuning.chance import NOTHING, chance_to_pass
from noria.tuning.confirm import Candidate, Confirmer
from noria.tuning.explore import Explored, Explorer
from noria.tuning.final import IsLikely, Ladder
from noria.tuning.foresight import Foresight
from noria.tuning.limits import Evidence, Limits
from noria.tuning.max_rate import SearchOptions, find_max_rate
from noria.tuning.probe import CertainProber, Prober, ProbeResult
from noria.tuning.setting import Setting
from support_queues import limit_of, waits
from support_tuning import CurveProber, calibration, queue_evidence, result, tuned_load

LIMITS = Limits(ttft_s=5.0)


def below(most: float) -> IsLikely:
    """What is at most so much of the limit is likely."""
    return lambda share, rate: share <= most


def test_the_highest_rate_that_is_likely_to_be_certain_comes_first() -> None:
    assert Ladder(10.0).next_rate(below(1.0)) == pytest.approx(9.7)
    assert Ladder(10.0).next_rate(below(0.8)) == pytest.approx(9.7 * 0.96**5)
    seen: list[float] = []

    def asked(share: float, rate: float) -> bool:
        seen.append(rate / share)
        return share < 0.7

    Ladder(10.0).next_rate(asked)
    assert seen == pytest.approx([10.0] * len(seen))
    assert len(seen) <= 5  # each is a simulation


def test_where_none_is_likely_the_lowest_is_tried_all_the_same() -> None:
    """The simulation may be wrong, and there is nothing else to do with the time."""
    assert Ladder(10.0).next_rate(below(0.0)) == pytest.approx(9.7 * 0.96**19)


def band(least: float, most: float) -> IsLikely:
    """At a lower share too few requests come, at a higher one they wait together."""
    return lambda share, rate: least <= share <= most


@pytest.mark.parametrize("least", [0.65, 0.75, 0.85])
def test_rates_at_which_too_few_requests_come_do_not_hide_the_likely_ones_above_them(least: float) -> None:
    """The middle of all rates is at 0.645 of the limit: below it there is nothing."""
    found = Ladder(10.0).next_rate(band(least, 0.9), 10.0 * least)
    assert found == pytest.approx(9.7 * 0.96**2)


def test_where_none_is_likely_the_lowest_is_tried_at_which_enough_requests_come() -> None:
    assert Ladder(10.0).next_rate(below(0.0), 7.0) == pytest.approx(9.7 * 0.96**7)
    assert Ladder(10.0).next_rate(below(0.0), 20.0) == pytest.approx(9.7)  # the most requests there can be


def test_no_rate_is_foretold_certain_that_has_too_few_requests_and_the_least_may_be() -> None:
    """8 minutes, of which 185 s are left: eight tenths of that hold the 96 and their warm-up at 0.72 a second."""
    foresight = Foresight(never_late(), lambda: 185.0, LIMITS)
    least = foresight.least_rate(0.975)
    assert least == pytest.approx((96 + 10) / (0.8 * 185.0))
    assert foresight.is_likely(Setting(), 0.1, 1.01 * least, 0.975)
    assert not foresight.is_likely(Setting(), 0.1, 0.99 * least, 0.975)
    assert Foresight(never_late(), lambda: 0.0, LIMITS).least_rate(0.975) == math.inf


def never_late() -> Explorer:
    tried = Explorer(calibration(), tuned_load(), LIMITS, 60, lambda: True)
    tried.try_setting(Setting(), 1.0)
    return tried


def test_after_a_rate_has_passed_only_a_higher_one_that_is_likely_is_worth_a_try() -> None:
    ladder = Ladder(10.0)
    ladder.learn(result(7.0, Verdict.PASS, -0.5))
    assert ladder.next_rate(below(0.9)) == pytest.approx(9.7 * 0.96**2)
    assert ladder.next_rate(below(0.7)) is None
    ladder.learn(result(9.6, Verdict.PASS, -0.2))
    assert ladder.limit == pytest.approx(9.6 * 1.08)  # no rate has failed: the estimate was too low
    ladder.learn(result(10.0, Verdict.UNDECIDED, -0.1))
    assert ladder.next_rate(below(1.0)) is None  # nothing is left between them that would matter


def test_a_rate_that_did_not_pass_says_that_the_limit_is_there_or_lower() -> None:
    ladder = Ladder(10.0)
    ladder.learn(result(9.0, Verdict.UNDECIDED, -0.1))
    assert ladder.next_rate(below(0.95)) == pytest.approx(9.0 * 0.97 * 0.96)
    ladder.learn(result(8.0, Verdict.FAIL, 1.0))
    assert ladder.next_rate(below(0.95)) == pytest.approx(0.75 * 8.0 * 0.97 * 0.96)


@dataclass
class QueueOfOne:
    """A queue of one server as an engine; rates in parts of its capacity. truth: at which the limit is met.

    estimate: what ranking made of it. left: service times until the time is over. Its load, and what is foretold of it,
    are drawn apart.
    """

    truth: float
    is_fixed: bool
    estimate: float
    left: float
    random: np.random.Generator
    limit: float = field(init=False)

    def __post_init__(self) -> None:
        self.limit = limit_of(0.95, self.truth, self.is_fixed)

    @contextmanager
    def opened(self, setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
        yield CurveProber(lambda rate: math.log(rate / self.estimate)), self

    def certify(self, rate: float, confidence: float) -> ProbeResult:
        verdict, count = self._judged(rate, int(self.left * rate), confidence)
        self.left -= count / rate
        return result(rate, verdict, math.log(rate / self.truth), num_requests=count)

    def least_rate(self, confidence: float) -> float:
        return least_to_pass(0.95, confidence) / (0.8 * self.left)

    def is_likely(self, setting: Setting, share: float, rate: float, confidence: float) -> bool:
        """As Foresight has it."""
        count = int(0.8 * self.left * rate)
        if not count:
            return False
        known = max(600, min(count, 3000))
        found = self._evidence(waits(self.random, known, min(1.05 * share * self.truth, 0.98), self.is_fixed))
        alpha = alpha_at_end(0.95, confidence, count)
        return chance_to_pass(NOTHING, count * found.num_effective / known, found, 0.95, alpha) >= 0.75

    def _evidence(self, waited: Values) -> Evidence:
        return queue_evidence(waited, self.limit)

    def _judged(self, rate: float, most: int, confidence: float) -> tuple[Verdict, int]:
        certifier = Certifier(0.95, confidence)
        waited = waits(self.random, max(most, 1), min(rate, 0.98), self.is_fixed)
        for count in range(1, most + 1):
            is_last = count == most
            if not certifier.is_due(count) and not is_last:
                continue
            look = certifier.last_look if is_last else certifier.look
            found = self._evidence(waited[:count])
            verdict = look(count, {"ttft": found})
            ahead = (most / count - 1) * found.num_effective
            chance = chance_to_pass(found, ahead, found, 0.95, certifier.last_alpha)
            if verdict is not Verdict.UNDECIDED or (count >= 60 and chance < 0.1):
                return verdict, count
        return Verdict.UNDECIDED, most

    def certified(self) -> list[ProbeResult]:
        """The probes that were to be certain."""
        stage = Confirmer(self.opened, lambda: self.left > 30, lambda words: None, 0.95, self)
        found = find_max_rate(
            CurveProber(lambda at: math.log(at / self.estimate)), self.estimate, SearchOptions()
        )
        explored = Explored(Setting(), found)
        stage.screen([Candidate(explored, Setting().config(calibration().config))])
        stage.certify(Setting())
        final = stage.confirmed[Setting()].final
        return [] if final is None else list(final.probes)


NUM_SEEDS = 40


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize("off", [1.0, 1.15], ids=["right", "too high"])
def test_most_queues_are_certified_in_the_time_and_no_more_than_allowed_beyond_their_limit(
    is_fixed: bool, off: float
) -> None:
    """The time is that of 2500 requests at capacity; what was estimated before may be wrong."""
    random = np.random.default_rng(7)
    passed = []
    for _ in range(NUM_SEEDS):
        queue = QueueOfOne(0.8, is_fixed, 0.8 * off, 2500.0, random)
        passed.append(
            max((one.rate for one in queue.certified() if one.verdict is Verdict.PASS), default=0.0)
        )
    assert sum(rate > 0.8 for rate in passed) / NUM_SEEDS <= 0.05
    assert sum(rate > 0 for rate in passed) / NUM_SEEDS >= 0.75
    assert float(np.median(passed)) > 0.5 * 0.8


def test_more_time_certifies_a_higher_rate() -> None:
    random = np.random.default_rng(8)
    medians = []
    for left in (1500.0, 6000.0):
        tried = [QueueOfOne(0.8, False, 0.8, left, random).certified() for _ in range(12)]
        passed = [[one.rate for one in probes if one.verdict is Verdict.PASS] for probes in tried]
        medians.append(float(np.median([max(rates, default=0.0) for rates in passed])))
    assert medians[1] > 1.05 * medians[0]
