"""What is evidence of a limit kept: on queues and gaps whose truth is known, PASS comes no oftener than it may."""

from __future__ import annotations

import math

import numpy as np
import pytest

from noria.bench.certificate import Certifier, Verdict
from noria.bench.outcome import Status
from noria.bench.stats import Interval, Values
from noria.tuning.limits import Evidence, ItlStat, Limits, evidence, num_decided
from support_queues import limit_of, waits
from support_tuning import outcome, queue_evidence

NOWHERE = Interval(1.0, math.nan, math.nan)


def verdict_of(waited: Values, limit: float, others: dict[str, Evidence] | None = None) -> Verdict:
    certifier = Certifier(0.95, 0.95)
    for count in range(1, len(waited) + 1):
        is_last = count == len(waited)
        if not is_last and not certifier.is_due(count):
            continue
        look = certifier.last_look if is_last else certifier.look
        verdict = look(count, {"ttft": queue_evidence(waited[:count], limit), **(others or {})})
        if verdict is not Verdict.UNDECIDED:
            return verdict
    return Verdict.UNDECIDED


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_queue_that_just_misses_its_limit_passes_no_oftener_than_the_error_allows(
    is_fixed: bool, load: float
) -> None:
    random = np.random.default_rng(11)
    limit = limit_of(0.949, load, is_fixed)
    verdicts = [verdict_of(waits(random, 1000, load, is_fixed), limit) for _ in range(200)]
    assert verdicts.count(Verdict.PASS) / len(verdicts) <= 0.05


@pytest.mark.parametrize("is_fixed", [True, False], ids=["M/D/1", "M/M/1"])
def test_a_queue_that_just_keeps_its_limit_fails_no_oftener_than_the_error_allows(is_fixed: bool) -> None:
    random = np.random.default_rng(12)
    limit = limit_of(0.951, 0.5, is_fixed)
    verdicts = [verdict_of(waits(random, 1000, 0.5, is_fixed), limit) for _ in range(200)]
    assert verdicts.count(Verdict.FAIL) / len(verdicts) <= 0.05


@pytest.mark.parametrize("limits", [Limits(1.0, 0.1), Limits(ttft_s=1.0), Limits(itl_s=0.1)])
def test_how_many_are_decided_is_told_without_the_evidence_as_it_says_itself(limits: Limits) -> None:
    """Of loads that are under way: some ended, some were cut, some answered, some late before their first token."""
    random = np.random.default_rng(13)
    for _ in range(200):
        ended, still_open = [], []
        for index in range(20):
            arrival_s, kind = float(random.uniform(0, 10)), random.choice(4, p=[0.7, 0.1, 0.05, 0.15])
            if kind < 2:
                status = (Status.OK, Status.CUT)[kind]
                ended.append(outcome(index, arrival_s, 0.1, [0.02], status))
            else:
                still_open.append((index, arrival_s, bool(kind == 2)))
        asked = (ended, limits, still_open, 10.0, 2.0)
        told = max((one.num_decided for one in evidence(*asked).values()), default=0)
        assert num_decided(*asked) == told


def test_what_is_far_beyond_its_limit_fails_after_a_dozen_requests() -> None:
    certifier = Certifier(0.95, 0.95)
    assert certifier.is_due(12)
    assert certifier.look(12, {"ttft": Evidence(9.0, 12.0, NOWHERE, 1.0)}) is Verdict.FAIL


def test_what_keeps_its_limit_with_room_passes_after_109_requests() -> None:
    certifier = Certifier(0.95, 0.95)
    assert certifier.look(108, {"ttft": Evidence(0.0, 108.0, NOWHERE, 1.0)}) is Verdict.UNDECIDED
    assert certifier.look(109, {"ttft": Evidence(0.0, 109.0, NOWHERE, 1.0)}) is Verdict.PASS


def test_the_end_of_the_time_is_a_look_of_its_own_that_spends_all_that_is_left() -> None:
    """The look before spent a quarter of what there was, so that 88 trials are enough where it takes 82 at once."""
    late = {"ttft": Evidence(3.0, 110.0, NOWHERE, 1.0)}
    for num_effective, verdict in ((88.0, Verdict.PASS), (87.0, Verdict.UNDECIDED)):
        certifier = Certifier(0.95, 0.95)
        assert certifier.look(110, late) is Verdict.UNDECIDED
        good = {"ttft": Evidence(0.0, num_effective, NOWHERE, 1.0)}
        assert certifier.look(120, good) is Verdict.UNDECIDED
        assert certifier.last_look(120, good) is verdict
    few = {"ttft": Evidence(11.0, 11.0, NOWHERE, 1.0)}
    assert Certifier(0.95, 0.95).last_look(11, few) is Verdict.UNDECIDED


def test_one_limit_that_is_open_keeps_the_others_from_passing() -> None:
    found = {"ttft": Evidence(0.0, 110.0, NOWHERE, 1.0), "itl": Evidence(3.0, 110.0, NOWHERE, 1.0)}
    assert Certifier(0.95, 0.95).look(110, found) is Verdict.UNDECIDED


def test_errors_refusals_and_timeouts_are_late_first_tokens_and_late_gaps() -> None:
    bad = (Status.ERROR, Status.REJECTED, Status.TIMEOUT)
    outcomes = [outcome(index, float(index), 0.1, [0.01] * 9) for index in range(17)]
    outcomes += [outcome(17 + i, 17.0 + i, 0.1, [0.01] * 9, status) for i, status in enumerate(bad)]
    found = evidence(outcomes, Limits(1.0, 0.05))
    for one in found.values():
        assert one.bad / one.num_effective == pytest.approx(3 / 20)
        assert one.quantile.value == math.inf
        assert one.margin > 1


def test_only_what_the_end_of_the_run_cut_is_left_out() -> None:
    outcomes = [outcome(0, 0.0, 0.1), outcome(1, 1.0, 5.0, status=Status.CUT)]
    assert evidence(outcomes, Limits(1.0))["ttft"].num_decided == 1


def test_gaps_count_at_most_one_trial_a_request_and_less_where_few_requests_have_most_of_them() -> None:
    even = [outcome(index, float(index), 0.1, [0.01] * 50) for index in range(100)]
    uneven = [
        outcome(index, float(index), 0.1, [0.01] * (500 if index % 10 == 0 else 5)) for index in range(100)
    ]
    assert evidence(even, Limits(itl_s=0.05))["itl"].num_effective == pytest.approx(100)
    assert evidence(uneven, Limits(itl_s=0.05))["itl"].num_effective < 15


def slowed_run(
    random: np.random.Generator, num_requests: int, share: float
) -> list[tuple[float, list[float]]]:
    """A machine whose steps are slow in spells, `share` of the time: of each request its arrival and its gaps."""
    spell, num_steps = 6, num_requests * 8
    slow = np.zeros(num_steps + 2000, dtype=bool)
    at = 0
    while at < len(slow):
        at += int(random.exponential(spell * (1 - share) / share)) + 1
        slow[at : at + spell] = True
        at += spell
    starts = np.sort(random.integers(0, num_steps, num_requests))
    lengths = random.integers(5, 200, num_requests)
    return [
        (float(start), np.where(slow[start : start + length], 0.2, 0.02).tolist())
        for start, length in zip(starts, lengths, strict=True)
    ]


def test_gaps_that_are_late_in_spells_pass_no_oftener_than_the_error_allows() -> None:
    """Slow spells hit all answers of their time at once. Some twenty of them come in a run: of what came never, a run
    cannot tell."""
    random = np.random.default_rng(13)
    limits = Limits(itl_s=0.1)
    passed = 0
    for _ in range(80):
        run = [
            outcome(index, start, 0.01, gaps)
            for index, (start, gaps) in enumerate(slowed_run(random, 150, 0.055))
        ]
        found = evidence(run, limits)
        certifier = Certifier(0.95, 0.95)
        passed += certifier.look(len(run), found) is Verdict.PASS
    assert passed / 80 <= 0.05


def test_gaps_that_are_hardly_ever_late_pass() -> None:
    run = [outcome(index, float(index), 0.1, [0.02] * 30) for index in range(109)]
    assert Certifier(0.95, 0.95).look(109, evidence(run, Limits(1.0, 0.1))) is Verdict.PASS


def test_per_request_limits_are_on_the_mean_gap_of_an_answer() -> None:
    run = [outcome(index, float(index), 0.1, [0.01, 0.01, 0.31]) for index in range(40)]
    pooled = evidence(run, Limits(itl_s=0.2))["itl"]
    mean = evidence(run, Limits(itl_s=0.2, itl_stat=ItlStat.TPOT))["itl"]
    assert pooled.bad / pooled.num_effective == pytest.approx(1 / 3)
    assert mean.bad == 0
    assert mean.quantile.value == pytest.approx(0.11)


def test_requests_behind_one_that_is_still_open_are_not_judged_by_their_gaps() -> None:
    """Those that ended first are the quick ones."""
    run = [outcome(index, float(index), 0.1, [0.01] * 5) for index in range(10) if index != 3]
    found = evidence(run, Limits(10.0, 0.05), open_arrivals=[(3, 3.0, True)], now_s=12.0)
    assert found["itl"].num_decided == 3
    assert found["ttft"].num_decided == 3
