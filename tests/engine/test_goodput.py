"""Goodput, requests answered whole within their deadline, does not collapse under overload."""

from __future__ import annotations

import random

import pytest

from noria.core.outputs import FinishReason
from support_load import CAPACITY, Load, Noise

SECONDS = 15.0
TIMEOUT_S = 4 * 8 / CAPACITY  # four times what a request takes at capacity


def _steady(draw: random.Random, step: int) -> float:
    return 1.0


def _jitter(draw: random.Random, step: int) -> float:
    return draw.uniform(0.5, 1.5)


def _swings(draw: random.Random, step: int) -> float:
    return (1.0 if step // 100 % 2 else 2.0) * draw.uniform(0.8, 1.2)


def _spikes(draw: random.Random, step: int) -> float:
    return 10.0 if draw.random() < 0.02 else 1.0


@pytest.mark.parametrize("noise", [_steady, _jitter, _swings, _spikes])
def test_up_to_ten_times_the_capacity_goodput_keeps_nine_tenths_of_its_peak(noise: Noise) -> None:
    load = Load(noise)
    load.run(CAPACITY, 5.0, timeout_s=None)  # the intake learns
    goodputs = [load.run(factor * CAPACITY, SECONDS, TIMEOUT_S) for factor in (1, 2, 4, 10)]
    assert min(goodputs[1:]) >= 0.9 * max(goodputs[:2])
    assert goodputs[-1] >= 0.9 * max(goodputs)
    load.intake.check()


def test_on_a_steady_machine_nothing_that_was_taken_comes_late() -> None:
    load = Load(_steady)
    load.run(CAPACITY, 5.0, timeout_s=None)
    load.run(5 * CAPACITY, SECONDS, TIMEOUT_S)
    assert load.refused > 0
    assert all(outcome.is_good for outcome in load.outcomes.values())


def test_without_the_guard_goodput_collapses() -> None:
    load = Load(_steady, is_guarded=False)
    assert load.run(5 * CAPACITY, SECONDS, TIMEOUT_S) < 0.5 * CAPACITY


def test_well_below_capacity_nothing_is_refused() -> None:
    load = Load(_jitter)
    load.run(CAPACITY, 5.0, timeout_s=None)
    assert load.run(0.5 * CAPACITY, SECONDS, TIMEOUT_S) > 0.4 * CAPACITY
    assert load.refused == 0
    assert {outcome.finish for outcome in load.outcomes.values()} == {FinishReason.LENGTH}
