"""The certificate passes what should pass, and what should not with no more than the stated chance."""

from __future__ import annotations

import numpy as np
import pytest

from noria.bench.certificate import (
    Certifier,
    Trials,
    Verdict,
    alpha_at_end,
    judge,
    least_to_pass,
    minimum_count,
    needed_count,
)
from noria.bench.slo import Decided, clipped
from noria.bench.stats import Values
from support_queues import limit_of, md1_wait_share, mm1_wait_share, waits

# (target, confidence) -> fewest requests with 0, 1, 2, 5, 10 and 20 bad ones, from MLPerf's early stopping
TABLE = {
    (0.95, 0.95): (59, 93, 124, 208, 336, 577),
    (0.95, 0.99): (90, 130, 165, 259, 398, 656),
    (0.99, 0.95): (299, 473, 628, 1049, 1693, 2902),
    (0.99, 0.99): (459, 662, 838, 1307, 2010, 3304),
}
NUM_BAD = (0, 1, 2, 5, 10, 20)


@pytest.mark.parametrize(("target", "confidence"), TABLE)
def test_minimum_counts_are_those_of_the_published_table(target: float, confidence: float) -> None:
    alpha = 1 - confidence
    found = tuple(minimum_count(num_bad, target, alpha) for num_bad in NUM_BAD)
    assert found == TABLE[target, confidence]
    for num_bad, count in zip(NUM_BAD, found, strict=True):
        assert judge(num_bad, count, target, alpha) is Verdict.PASS
        assert judge(num_bad, count - 1, target, alpha) is Verdict.UNDECIDED


def test_many_bad_ones_fail_and_few_requests_say_nothing() -> None:
    assert judge(20, 60, 0.95, 0.05) is Verdict.FAIL
    assert judge(0, 10, 0.95, 0.05) is Verdict.UNDECIDED
    assert judge(0, 0, 0.95, 0.05) is Verdict.UNDECIDED


def test_looks_and_the_end_spend_three_tenths_of_the_error_and_no_more() -> None:
    certifier, spent_before = Certifier(0.95, 0.95), 0.0
    for count in range(20_000):
        left = certifier.last_alpha
        if certifier.is_due(count):
            certifier.look(count, NOTHING_KNOWN)
            spent_before += left - certifier.last_alpha
    assert 0.0068 < spent_before < 0.0075
    assert spent_before + certifier.last_alpha == pytest.approx(0.015)


@pytest.mark.parametrize("count", [50, 109, 110, 500, 3000])
def test_what_the_end_of_a_run_may_spend_is_known_before_it(count: int) -> None:
    certifier = Certifier(0.95, 0.95)
    for number in range(count):
        if certifier.is_due(number):
            certifier.look(number, NOTHING_KNOWN)
    assert alpha_at_end(0.95, 0.95, count) == pytest.approx(certifier.last_alpha)


NOTHING_KNOWN = {"slo": Trials(0.0, 0.0)}


def verdict_of(is_bad: Values, stress: Values, target: float = 0.95, confidence: float = 0.95) -> Verdict:
    """What a run says that is looked at as it grows, and at its end."""
    certifier = Certifier(target, confidence)
    for count in range(1, len(is_bad) + 1):
        is_last = count == len(is_bad)
        if not is_last and not certifier.is_due(count):
            continue
        known = Decided(tuple(map(bool, is_bad[:count])), tuple(stress[:count]))
        look = certifier.last_look if is_last else certifier.look
        verdict = look(count, {"slo": known.trials})
        if verdict is not Verdict.UNDECIDED:
            return verdict
    return Verdict.UNDECIDED


def judged(waited: Values, limit: float) -> Verdict:
    stress = np.array([clipped(one) for one in waited / limit])
    return verdict_of((waited > limit).astype(np.float64), stress)


def shares(verdicts: list[Verdict]) -> dict[Verdict, float]:
    return {verdict: verdicts.count(verdict) / len(verdicts) for verdict in Verdict}


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_independent_requests_at_the_edge_pass_no_more_often_than_stated(confidence: float) -> None:
    random = np.random.default_rng(1)
    verdicts = []
    for _ in range(600):
        bad = (random.random(2000) < 0.0501).astype(np.float64)
        verdicts.append(verdict_of(bad, random.random(2000), confidence=confidence))
    found = shares(verdicts)
    assert found[Verdict.PASS] <= 1 - confidence
    assert found[Verdict.FAIL] <= 1 - confidence


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize("load", [0.5, 0.7])
def test_queues_that_just_miss_the_target_pass_no_more_often_than_stated(is_fixed: bool, load: float) -> None:
    """The limit is the wait that exactly 94.9 % keep, by the queue's own formula."""
    random = np.random.default_rng(2)
    limit = limit_of(0.949, load, is_fixed)
    verdicts = []
    for _ in range(200):
        waited = waits(random, 1500, load, is_fixed)
        verdicts.append(judged(waited, limit))
    assert shares(verdicts)[Verdict.PASS] <= 0.05


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
def test_queues_far_from_the_limit_are_decided_rightly(is_fixed: bool) -> None:
    random = np.random.default_rng(3)
    easy, hard = limit_of(0.999, 0.5, is_fixed), limit_of(0.6, 0.5, is_fixed)
    passed, failed = [], []
    for _ in range(60):
        waited = waits(random, 2000, 0.5, is_fixed)
        passed.append(judged(waited, easy))
        failed.append(judged(waited, hard))
    assert (
        shares(passed)[Verdict.PASS] >= 0.5
    )  # neighbours wait together, so 2000 requests tell as little as 230
    assert shares(passed)[Verdict.FAIL] == 0
    assert shares(failed)[Verdict.FAIL] >= 0.95


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
def test_the_synthetic_queues_are_those_of_the_formulas(is_fixed: bool) -> None:
    waited = waits(np.random.default_rng(4), 100_000, 0.6, is_fixed)
    share_of = md1_wait_share if is_fixed else mm1_wait_share
    for limit in (0.5, 1.5, 3.0):
        assert float((waited <= limit).mean()) == pytest.approx(share_of(limit, 0.6), abs=0.01)


def test_a_clear_case_is_over_after_109_requests_and_at_the_end_after_82() -> None:
    assert Certifier(0.95, 0.95).look(109, {"slo": Trials(0.0, 109.0)}) is Verdict.PASS
    assert Certifier(0.95, 0.95).look(109, {"slo": Trials(0.0, 108.0)}) is Verdict.UNDECIDED
    assert Certifier(0.95, 0.95).last_look(82, {"slo": Trials(0.0, 82.0)}) is Verdict.PASS
    assert Certifier(0.95, 0.95).last_look(82, {"slo": Trials(0.0, 81.0)}) is Verdict.UNDECIDED
    assert least_to_pass(0.95, 0.95) == 82


def test_bad_ones_are_rounded_against_the_claim_when_scaled_to_fewer_requests() -> None:
    """A quarter of a bad one counts as one."""
    assert Certifier(0.95, 0.95).last_look(300, {"slo": Trials(0.25, 85.0)}) is Verdict.UNDECIDED
    assert Certifier(0.95, 0.95).last_look(300, {"slo": Trials(0.0, 85.0)}) is Verdict.PASS


@pytest.mark.parametrize(
    ("share", "needed"), [(0.0, 59), (0.001, 93), (0.01, 93), (0.02, 181), (0.06, None), (1.0, None)]
)
def test_how_many_are_needed_at_a_share_of_bad_ones_is_the_fewest_that_pass(
    share: float, needed: int | None
) -> None:
    assert needed_count(share, 0.95, 0.05) == needed


def test_requests_that_wait_together_count_as_the_independent_ones_that_tell_as_much() -> None:
    """Spells of eight that are nearer to the limit than the 32 after them."""
    stress = np.random.default_rng(6).uniform(0.1, 0.4, 400)
    alone = Decided((False,) * 400, tuple(stress))
    spells = tuple(stress + np.tile(np.repeat([0.5, 0.0], [8, 32]), 10))
    together = Decided((False,) * 400, spells)
    assert alone.trials.num_effective > 200
    assert together.trials.num_effective < 100
