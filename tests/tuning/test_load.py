"""The load of noria tune: what is said to be sent is sent, and for as long as a verdict needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noria.bench.arrivals import mean_rate
from noria.bench.play import Play
from noria.bench.workload import Workload
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError
from noria.config.option import settings_of
from noria.config.tuning import TuningOptions
from noria.tuning.load import TunedLoad, begin_s, make_load, num_warm_up

SCALINGS = next(one for one in settings_of(TuningOptions) if one.name == "rate_scaling").about.choices


def synthetic(most: int, turns: str = "1") -> TunedLoad:
    options = WorkloadOptions(prompt_tokens="20-40", output_tokens="4-8", turns=turns)
    return make_load(options, LoadOptions(), most, 4096)


def trace(most: int, scaling: str = "compress") -> TunedLoad:
    """About a request a second."""
    instants = np.cumsum(np.random.default_rng(3).exponential(1.0, most))
    load = synthetic(most)
    workload = Workload("trace", load.workload.requests, instants)
    return TunedLoad(workload, LoadOptions(rate_scaling=scaling), load.seed)


def instants(play: Play) -> np.ndarray:
    return np.array([at_s for at_s, _ in play.due])


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("rate", [0.1, 1.0, 500.0])
def test_every_scaling_that_can_be_asked_for_sends_the_rate_that_is_probed(scaling: str, rate: float) -> None:
    play = trace(2000, scaling).play(rate, 2000)
    assert len(play.due) == 2000
    assert mean_rate(instants(play)) == pytest.approx(rate, rel=0.1)


def test_a_load_that_cannot_have_the_rate_is_no_load() -> None:
    with pytest.raises(ConfigError, match="cannot be thinned to 500"):
        trace(100, "thin").play(500.0, 100)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("rate", [0.5, 7.0, 90.0])
def test_a_trace_that_is_too_short_lasts_ten_times_the_limit_at_any_rate(scaling: str, rate: float) -> None:
    play = trace(54, scaling).lasting_play(rate, 100, 3.0)
    assert play.due[-1][0] - begin_s(play) >= 30.0
    assert mean_rate(instants(play)) == pytest.approx(rate, rel=0.35)
    assert len(play.requests) >= 100


def test_so_does_a_load_without_instants_and_one_of_conversations() -> None:
    for load in (synthetic(60), synthetic(60, turns="3-5")):
        play = load.lasting_play(8.0, 60, 3.0)
        assert play.due[-1][0] - begin_s(play) >= 30.0
    long = synthetic(60).lasting_play(8.0, 60, float("inf"))
    assert len(long.requests) == 60


def test_what_begins_anew_has_the_same_lengths_and_bursts_and_new_text() -> None:
    load = trace(50)
    play = load.play(2.0, 150)
    first, second, third = (play.requests[at : at + 50] for at in (0, 50, 100))
    assert [one.index for one in play.requests] == list(range(150))
    for later in (second, third):
        assert [(one.num_prompt, one.num_output) for one in later] == [
            (one.num_prompt, one.num_output) for one in first
        ]
    names = [{piece.name for one in part for piece in one.pieces} for part in (first, second, third)]
    assert not names[0] & names[1]
    assert not names[1] & names[2]
    at_s = instants(play)
    assert np.allclose(np.diff(at_s[:50]), np.diff(at_s[50:100]))
    assert at_s[-1] / 150 == pytest.approx(0.5, rel=0.1)
    assert [load.rounds(count) for count in (1, 50, 51, 150)] == [1, 1, 2, 3]


def test_conversations_that_begin_anew_are_conversations_of_their_own() -> None:
    play = synthetic(40, turns="4").play(2.0, 80)
    sessions = [one.session for one in play.requests]
    assert len(set(sessions)) == 20
    assert len(play.due) == 20
    for before, after in play.followers.items():
        assert play.requests[before].session == play.requests[after].session
        assert play.requests[before].turn + 1 == play.requests[after].turn


@pytest.mark.parametrize("turns", ["1", "3", "12-16", "40"])
def test_the_warm_up_is_of_those_that_come_by_themselves(turns: str) -> None:
    play = synthetic(200, turns).play(2.0, 200)
    assert num_warm_up(play) == min(20, len(play.due) // 10)
    assert begin_s(play) == play.due[len(play.due) // 10][0]
    assert begin_s(replace(play, due=())) == 0.0
