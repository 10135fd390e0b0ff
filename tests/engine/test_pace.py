from __future__ import annotations

from random import Random

import pytest

from noria.config.engine import StepCost
from noria.engine.pace import PaceMeter


def _meter(*steps: tuple[float, int, int], prior: StepCost | None = None) -> PaceMeter:
    meter = PaceMeter(prior)
    for step in steps:
        meter.learn(*step)
    return meter


def _mixed(random: Random, count: int) -> list[tuple[float, int, int]]:
    """Of 10 ms a step, 0.2 ms a prompt token and 1 ms a decode."""
    sizes = [(random.choice([0, 0, 50, 200]), random.randint(1, 16)) for _ in range(count)]
    return [(0.010 + 0.0002 * p + 0.001 * d, p, d) for p, d in sizes]


def test_the_parts_of_mixed_steps_are_told_apart() -> None:
    pace = _meter(*_mixed(Random(1), 200)).pace()
    assert pace.fixed_s == pytest.approx(0.010, rel=0.1)
    assert pace.prompt_token_s == pytest.approx(0.0002, rel=0.1)
    assert pace.output_token_s == pytest.approx(0.001, rel=0.1)


def test_steps_that_are_all_alike_are_foretold_exactly_however_they_are_told_apart() -> None:
    pace = _meter(*[(0.05, 100, 8)] * 100).pace()
    assert pace.step_s(8) + 100 * pace.prompt_token_s == pytest.approx(0.05, rel=0.01)


def test_what_was_timed_at_start_tells_fixed_costs_from_those_of_tokens_until_more_is_seen() -> None:
    prior = StepCost(target_s=0.1, fixed_s=0.007, token_s=0.001, pair_s=0.0)
    pace = _meter(*[(0.008, 0, 1)] * 50, prior=prior).pace()
    assert pace.step_s(32) == pytest.approx(0.039, rel=0.1)


def test_a_machine_that_becomes_slower_is_followed() -> None:
    steps = _mixed(Random(2), 500)
    slower = [(3 * seconds, p, d) for seconds, p, d in _mixed(Random(3), 2000)]
    pace = _meter(*steps, *slower).pace()
    assert pace.step_s(10) == pytest.approx(3 * 0.020, rel=0.1)


def test_nothing_takes_less_than_no_time() -> None:
    steps = [(0.020, 0, 1), (0.010, 100, 1), (0.005, 0, 16)] * 20
    pace = _meter(*steps).pace()
    assert min(pace.fixed_s, pace.prompt_token_s, pace.output_token_s) >= 0
