"""The search ends around the rate of a queue's own formula, with few probes, and says what kind of edge it is."""

from __future__ import annotations

import math

import pytest

from noria.bench.certificate import Verdict
from noria.tuning.max_rate import (
    Ended,
    SearchOptions,
    Shape,
    find_max_rate,
    monotone_margins,
    next_rate,
    root,
)
from support_tuning import CurveProber, queue_margin, result, true_rate

LIMIT, SHARE = 6.0, 0.95


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize("start", [0.05, 0.5, 0.95, 3.0])
@pytest.mark.parametrize("precision", [0.05, 0.02])
def test_the_bracket_holds_the_rate_of_the_formula_and_is_as_narrow_as_asked(
    is_fixed: bool, start: float, precision: float
) -> None:
    truth = true_rate(LIMIT, SHARE, is_fixed)
    prober = CurveProber(queue_margin(LIMIT, SHARE, is_fixed))
    found = find_max_rate(prober, start, SearchOptions(precision))
    assert found.ended is Ended.PRECISE
    assert found.passed <= truth <= found.failed <= found.passed * (1 + precision)
    assert found.estimate == pytest.approx(truth, rel=precision)
    assert len(prober.rates) <= 12


def test_from_a_good_start_it_takes_five_probes() -> None:
    truth = true_rate(LIMIT, SHARE, False)
    prober = CurveProber(queue_margin(LIMIT, SHARE, False))
    find_max_rate(prober, 0.95 * truth, SearchOptions())
    assert len(prober.rates) <= 5


def test_a_latency_that_grows_with_the_rate_is_smooth_and_a_step_is_a_cliff() -> None:
    smooth = find_max_rate(CurveProber(lambda rate: 2 * math.log(rate / 10)), 8.0, SearchOptions())
    cliff = find_max_rate(CurveProber(lambda rate: -1.2 if rate < 10 else 1.5), 8.0, SearchOptions())
    assert smooth.shape is Shape.SMOOTH
    assert cliff.shape is Shape.CLIFF
    assert cliff.passed < 10 <= cliff.failed


def test_where_a_rate_failed_below_one_that_passed_the_lower_one_counts() -> None:
    def margin(rate: float) -> float:
        return 0.4 if 4.5 < rate < 5.5 or rate > 9 else -0.5

    found = find_max_rate(CurveProber(margin), 6.0, SearchOptions(), [CurveProber(margin).probe(5.0)])
    assert found.failed <= 5.0
    assert 0 < found.passed < found.failed
    assert found.best is not None
    assert found.best.rate == found.passed


def test_it_ends_when_two_probes_cannot_decide() -> None:
    prober = CurveProber(lambda rate: math.log(rate / 10), open_below=0.08)
    found = find_max_rate(prober, 8.0, SearchOptions(0.02))
    assert found.ended is Ended.UNDECIDED
    assert found.passed < 10 < found.failed
    assert found.estimate == pytest.approx(10, rel=0.05)


def test_beside_a_rate_that_could_not_be_decided_the_wider_side_is_looked_at() -> None:
    probes = [
        result(8.0, Verdict.PASS, -0.3),
        result(9.0, Verdict.UNDECIDED, 0.01),
        result(12.0, Verdict.FAIL, 0.5),
    ]
    following = next_rate(probes, 0.02)
    assert following is not None
    assert 9.0 < following < 12.0


def test_it_ends_with_the_time_and_with_the_probes_it_may_make() -> None:
    curve = queue_margin(LIMIT, SHARE, False)
    one = find_max_rate(CurveProber(curve), 0.5, SearchOptions(can_go_on=lambda: False))
    assert (one.ended, len(one.probes)) == (Ended.TIME, 1)
    two = find_max_rate(CurveProber(curve), 0.05, SearchOptions(most_probes=2))
    assert (two.ended, len(two.probes)) == (Ended.PROBES, 2)


def test_what_never_passes_has_no_rate() -> None:
    found = find_max_rate(CurveProber(lambda rate: 0.5), 8.0, SearchOptions(most_probes=4))
    assert found.passed == 0.0
    assert found.best is None


def test_margins_that_fall_by_chance_are_made_to_rise_before_their_root_is_taken() -> None:
    probes = [
        result(1.0, Verdict.PASS, -1.0),
        result(2.0, Verdict.PASS, -0.2),
        result(3.0, Verdict.PASS, -0.6),
        result(4.0, Verdict.FAIL, 0.8),
    ]
    _, margins = monotone_margins(probes)
    assert margins.tolist() == pytest.approx([-1.0, -0.4, -0.4, 0.8])
    assert 3.0 < root(probes) < 4.0
