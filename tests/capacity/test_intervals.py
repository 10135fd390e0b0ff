"""Intervals hold what they say they hold: a known truth makes the steps, and lies within them as often as stated."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from noria.capacity.features import StepFeatures
from noria.capacity.fit import MeasuredStep, learn
from noria.capacity.foretold import COVERAGE, foretold
from noria.capacity.noise import MeasuredNoise
from noria.capacity.step_model import Regime, StepModel

_PART = 96  # steps that pass at one speed of the machine
_NUM_PARTS = 16
_NUM_WORLDS = 100
# Two standard errors of a share of 100, beside the five points that are allowed.
_ALLOWED = 0.05 + 2 * math.sqrt(COVERAGE * (1 - COVERAGE) / _NUM_WORLDS)


def truth_s(row: StepFeatures) -> float:
    return 0.008 + 0.0012 * row.num_tokens + 0.0004 * row.num_sampled + 3e-8 * row.decode_context


def rows(draw: random.Random, count: int) -> list[StepFeatures]:
    return [
        StepFeatures(seqs, seqs, seqs, 0.0, seqs * draw.randrange(50, 400))
        for seqs in (draw.randrange(1, 17) for _ in range(count))
    ]


def steps_of_a_world(draw: random.Random, drift: float, scatter: float) -> list[MeasuredStep]:
    steps = []
    for _ in range(_NUM_PARTS):
        speed = math.exp(draw.gauss(0, drift))
        steps += [
            MeasuredStep(row, truth_s(row) * speed * math.exp(draw.gauss(0, scatter)))
            for row in rows(draw, _PART)
        ]
    return steps


def taken_s(model: StepModel, load: list[StepFeatures], seed: int) -> float:
    """By a simulation of nothing but steps."""
    drawn, noise = model.drawn(seed), MeasuredNoise(model, seed)
    return sum(drawn.seconds(row) * noise.factor(Regime.of(row), 0.0) for row in load)


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_intervals_cover_the_truth_as_often_as_they_say(drift: float) -> None:
    covered = 0
    for seed in range(_NUM_WORLDS):
        draw = random.Random(seed)
        model = learn(steps_of_a_world(draw, drift, 0.05))
        load = rows(draw, _PART)
        speed = math.exp(draw.gauss(0, drift))
        real_s = sum(truth_s(row) * speed * math.exp(draw.gauss(0, 0.05)) for row in load)
        expected = foretold([taken_s(model, load, 1 + number) for number in range(8)])
        covered += expected.low <= real_s <= expected.high
    assert covered / _NUM_WORLDS == pytest.approx(COVERAGE, abs=_ALLOWED)


def test_a_drift_is_learnt_and_scatter_alone_is_none() -> None:
    for drift in (0.0, 0.1):
        found = [learn(steps_of_a_world(random.Random(seed), drift, 0.05)).drift for seed in range(8)]
        assert np.mean(found) == pytest.approx(drift, abs=0.4 * drift + 0.01)


def test_seed_0_is_the_likeliest_model_and_others_lie_around_it() -> None:
    model = learn(steps_of_a_world(random.Random(1), 0.02, 0.05))
    assert model.drawn(0) is model
    assert model.drawn(3) == model.drawn(3) != model.drawn(4)
    row = StepFeatures(8, 8, 8, 0.0, 1600)
    others = [model.drawn(seed).seconds(row) for seed in range(1, 200)]
    assert np.mean(others) == pytest.approx(model.seconds(row), rel=0.01)


def test_a_figure_of_one_run_has_no_interval_and_of_more_has_students() -> None:
    assert math.isnan(foretold([3.0]).low)
    # mean 0, s 1, n 3: t of 2 degrees is 2.920; sqrt(1 + 1/3) beside it
    found = foretold([-1.0, 0.0, 1.0])
    assert (found.value, found.high) == (0.0, pytest.approx(2.920 * math.sqrt(4 / 3), rel=1e-3))
    # 9 degrees: 1.833
    ten = [0.0, *np.linspace(-1, 1, 9).tolist()]
    half = 1.833 * float(np.std(ten, ddof=1)) * math.sqrt(1.1)
    assert foretold(ten).high == pytest.approx(np.mean(ten) + half, rel=1e-3)


def test_a_figure_above_zero_is_expected_above_zero() -> None:
    found = foretold([0.01, 0.1, 1.0, 10.0])
    assert 0 < found.low < found.value < found.high
