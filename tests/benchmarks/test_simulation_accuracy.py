"""The benchmark of the simulation compares like with like, and says so in a table."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from benchmarks.accuracy.figures import GOALS, growing, highest_rate, margin
from benchmarks.accuracy.foretelling import Foreteller, Log, SeenSpeed
from benchmarks.accuracy.judging import Judged, Verdict, highest_of, regret
from benchmarks.accuracy.loads import (
    REPEATED,
    SETTINGS,
    SHARES,
    WORKLOADS,
    Held,
    held_out,
    learning_plays,
    named_anew,
    play_of,
)
from benchmarks.accuracy.report import markdown, spreads

from noria.capacity.features import StepFeatures
from noria.capacity.fit import MeasuredStep, fit_steps
from noria.capacity.front import Front
from noria.capacity.step_model import Regime
from noria.config.engine import EngineConfig


def judged(held: Held, real: Callable[[float], float], simulated: Callable[[float], float]) -> Judged:
    """real, simulated: every figure in seconds, by requests a second."""
    rate = 10 * held.share
    return Judged(
        held=held,
        rate=rate,
        num_requests=100,
        num_bad=0,
        real=dict.fromkeys(GOALS, real(rate)),
        simulated={
            name: tuple(simulated(rate) * (1 + 0.01 * place) for place in (-1, 0, 1)) for name in GOALS
        },
        in_hindsight=dict.fromkeys(GOALS, (simulated(rate),)),
        drift=0.0,
        own_drift=0.01,
        speed=300.0,
    )


def test_every_setting_meets_every_workload_at_every_rate_and_some_twice() -> None:
    points = held_out()
    assert len(set(points)) == len(points)
    once = [held for held in points if held.number == 0]
    assert len(once) == len(WORKLOADS) * len(SHARES) * len(SETTINGS)
    assert len(points) - len(once) == len(REPEATED) * len(SETTINGS)
    # Neighbours in time are of different settings, so that drift hits both alike.
    assert all(one.setting != other.setting for one, other in itertools.pairwise(points))


def test_a_load_is_the_same_again_but_for_its_tokens() -> None:
    play = play_of("talk", 2.0, 20.0)
    assert play_of("talk", 2.0, 20.0) == play
    renamed = named_anew(play, "again")
    assert renamed.due == play.due and renamed.followers == play.followers
    assert [one.num_prompt for one in renamed.requests] == [one.num_prompt for one in play.requests]
    names = {piece.name for one in play.requests for piece in one.pieces}
    assert not names & {piece.name for one in renamed.requests for piece in one.pieces}


def test_the_highest_rate_is_where_the_margin_goes_through_zero() -> None:
    rates = [1.0, 2.0, 3.0, 4.0]
    assert highest_rate(rates, [-0.4, -0.2, 0.2, 0.9]) == (pytest.approx(2.5), True)
    assert highest_rate(rates, [-0.4, -0.3, -0.2, -0.1]) == (4.0, False)
    assert highest_rate(rates, [0.1, 0.2, 0.3, 0.4]) == (1.0, False)


def test_what_falls_is_levelled_before_a_root_is_looked_for() -> None:
    assert growing(np.array([1.0, 3.0, 2.0, 4.0])).tolist() == [1.0, 2.5, 2.5, 4.0]
    assert highest_rate([1.0, 2.0, 3.0], [-0.1, -0.3, 0.6])[0] == pytest.approx(2.25)


def test_the_worst_of_the_limits_decides() -> None:
    assert margin({"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}) == pytest.approx(math.log(1.5))


def test_a_table_tells_errors_spreads_rates_and_regret() -> None:
    first, second = SETTINGS
    points = []
    for held in held_out():
        slow = 1.2 if held.setting == second else 1.0
        again = 1.1 if held.number else 1.0
        real = lambda rate, factor=slow * again: 0.1 * factor * math.exp(0.2 * rate)  # noqa: E731
        simulated = lambda rate, factor=slow: 0.104 * factor * math.exp(0.2 * rate)  # noqa: E731
        points.append(judged(held, real, simulated))
    assert spreads(points)["TPOT mean"] == pytest.approx(0.1)
    highest = highest_of(points, "chat")
    assert [one.setting for one in highest] == [first, second]
    assert highest[0].real > highest[1].real
    # A simulation that is 4 % too slow at an exponent of 0.2 a request is 0.2 requests a second too careful.
    assert highest[0].real - highest[0].simulated == pytest.approx(math.log(1.04) / 0.2, rel=0.05)
    assert regret(highest, lambda one: one.simulated) == 0.0
    worse = highest[0].real / highest[1].real - 1
    assert regret(highest, lambda one: -one.simulated) == pytest.approx(worse) and worse > 0
    told = markdown(Verdict(tuple(points), tuple(highest), {"chat": worse}, {"chat": 0.0}))
    assert "| TPOT mean | 4.2%" in told
    assert f"| {worse:.1%} | 0.0% |" in told
    assert "300 times real time" in told and "chat, 32 x 512, 95%" in told


def test_what_is_learnt_from_has_long_and_short_contexts_with_equally_many_requests() -> None:
    plays = list(learning_plays(20.0, 32))
    for short, long in zip(plays[::2], plays[1::2], strict=True):
        assert short.max_concurrency == long.max_concurrency
        lengths = [np.mean([one.num_prompt for one in play.requests]) for play in (short, long)]
        assert lengths[1] > 4 * lengths[0]
    # The long beginnings are the same everywhere, so that only the first play computes them; nothing else is.
    begins, rests = [], []
    for play in plays[1::2]:
        begins.append({one.pieces[0].name for one in play.requests})
        rests.append({one.pieces[1].name for one in play.requests})
    assert set.union(*begins) == begins[0] | begins[1] and len(set.union(*begins)) == 6
    assert sum(map(len, rests)) == len(set.union(*rests))


def test_in_hindsight_a_step_is_as_slow_as_one_that_the_server_made_at_about_that_time() -> None:
    starts_s, foretold_s = np.array([0.0, 1.0, 2.0, 10.0]), np.array([0.1, 0.3, 0.1, 0.1])
    noise = SeenSpeed(starts_s, foretold_s * np.array([1.0, 2.0, 3.0, 9.0]), foretold_s, random.Random(0))
    found = [noise.factor(Regime.DECODE, 0.5) for _ in range(4000)]
    assert {round(one, 9) for one in found} == {1.0, 2.0}
    assert np.mean(found) == pytest.approx((0.1 * 1.0 + 0.3 * 2.0) / 0.4, rel=0.02)  # as both together
    # Of its time, or of an idle one before it, or after all.
    lone = [noise.factor(Regime.DECODE, now_s) for now_s in (9.5, 5.0, 99.0) for _ in range(100)]
    assert lone == pytest.approx([9.0] * 300)


def steps_at(speeds: list[float], draw: random.Random) -> list[MeasuredStep]:
    """Eighty decodes at each speed of the machine."""
    return [
        MeasuredStep(
            StepFeatures(seqs, seqs, seqs, 0.0, 0), (0.01 + 0.001 * seqs) * speed * draw.uniform(0.98, 1.02)
        )
        for speed in speeds
        for seqs in (draw.randrange(1, 17) for _ in range(80))
    ]


def test_a_machine_that_has_changed_since_it_was_learnt_from_makes_forecasts_less_sure_and_nothing_else() -> (
    None
):
    draw = random.Random(4)
    learnt = steps_at([1.0] * 10, draw)
    speeds = [draw.choice([0.8, 1.25]) for _ in range(15)]
    steps = learnt + steps_at([speed for speed in speeds for _ in range(2)], draw)
    starts_s = np.cumsum([step.seconds for step in steps])
    log = Log(cast(EngineConfig, None), steps, starts_s, starts_s, [])
    before = Foreteller(log, 0.0, fit_steps(learnt), Front(0.0, 0.0), 0.0)
    then = before.as_of(starts_s[len(learnt) - 1])
    later = before.as_of(starts_s[-1])
    assert then.fit.model.drift < 0.02
    # The quarter that was learnt from is steady.
    assert later.fit.model.drift == pytest.approx(math.log(1.25) * math.sqrt(3 / 4), rel=0.2)
    assert replace(later, fit=before.fit) == before
    assert replace(later.fit.model, drift=before.fit.model.drift) == before.fit.model
