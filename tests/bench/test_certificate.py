"""The certificate passes what should pass, and what should not with no more than the stated chance."""

from __future__ import annotations

import numpy as np
import pytest

from noria.bench.certificate import Sequential, Verdict, judge, minimum_count
from noria.bench.slo import clipped
from noria.bench.stats import Values, effective_count
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


def test_looks_spend_no_more_than_the_error_in_all() -> None:
    sequential = Sequential(0.95, 0.95)
    spent = sum(sequential._alpha(look) for look in range(1, 10_000))
    assert spent == pytest.approx(0.05, rel=1e-3)
    assert spent < 0.05


def verdict_of(is_bad: Values, stress: Values, target: float = 0.95, confidence: float = 0.95) -> Verdict:
    """What a run says that is looked at as it grows."""
    sequential = Sequential(target, confidence)
    while sequential.next_look <= len(is_bad):
        count = sequential.next_look
        effective = effective_count(stress[:count])
        certificate = sequential.look(int(is_bad[:count].sum()), count, effective)
        if certificate.verdict is not Verdict.UNDECIDED:
            return certificate.verdict
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


def test_a_clear_case_is_over_after_some_sixty_to_ninety_requests() -> None:
    assert Sequential(0.95, 0.95).next_look <= 73
    sequential = Sequential(0.95, 0.95)
    assert sequential.look(0, 73, 73.0).verdict is Verdict.PASS


def test_bad_ones_are_rounded_against_the_claim_when_scaled_to_fewer_requests() -> None:
    certificate = Sequential(0.95, 0.95).look(1, 300, 75.0)
    assert certificate.num_effective == 75
    assert certificate.verdict is Verdict.UNDECIDED  # a quarter of a bad one counts as one
