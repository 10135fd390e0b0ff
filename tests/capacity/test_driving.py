"""A load of noria bench drives a simulated engine as it would a real one, and is summed up by the same figures."""

from __future__ import annotations

import numpy as np
import pytest

from noria.bench.metrics import summarise
from noria.bench.outcome import Status
from noria.bench.play import Play, make_play
from noria.bench.slo import parse_slo
from noria.bench.workload import make_workload
from noria.capacity.driving import Driver, bench_outcomes, samples
from noria.capacity.simulate import Deployment, SimulatedRun, simulate
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError
from support_capacity import simple_model
from support_engine import engine_config

CONFIG = engine_config(num_blocks=1024, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)


def play_of(load: LoadOptions, count: int = 60, **workload: object) -> Play:
    options = WorkloadOptions(**{"prompt_tokens": "20-60", "output_tokens": "5-15", **workload})
    return make_play(make_workload(options, count, 2048, None), load, options.bench_seed)


def simulated(play: Play) -> SimulatedRun:
    driver = Driver(play, 0)
    return simulate(Deployment(CONFIG, simple_model()), driver.first(), follow_up=driver.follow_up)


def test_an_open_loop_arrives_when_the_load_generator_would_send() -> None:
    play = play_of(LoadOptions(rate=10))
    run = simulated(play)
    assert [one.arrival.at_s for one in run.outcomes] == [at_s for at_s, _ in play.due]
    planned = play.requests
    assert [one.arrival.num_prompt for one in run.outcomes] == [one.num_prompt for one in planned]
    assert [len(one.token_times_s) for one in run.outcomes] == [one.num_output for one in planned]


def test_a_closed_loop_has_as_many_inside_as_asked_for() -> None:
    run = simulated(play_of(LoadOptions(max_concurrency=3)))
    assert len(run.outcomes) == 60
    busy = [step.num_running + step.num_waiting for step in run.steps[0]]
    assert max(busy) == 3


def test_a_closed_loop_of_some_seconds_sends_nothing_later() -> None:
    run = simulated(play_of(LoadOptions(max_concurrency=3, duration=2.0), count=5000))
    assert 1.5 < max(one.arrival.at_s for one in run.outcomes) < 2.0


def test_turns_follow_the_answers_before_them_and_find_their_prefix() -> None:
    play = play_of(
        LoadOptions(rate=2), count=40, turns="4", pause=0.5, prompt_tokens="64", output_tokens="16"
    )
    run = simulated(play)
    by_index = {int(one.arrival.request_id): one for one in run.outcomes}
    assert len(by_index) == 40
    for index, follower in play.followers.items():
        assert by_index[follower].arrival.at_s >= by_index[index].finished_s
        assert by_index[follower].num_cached >= by_index[index].arrival.num_prompt // 16 * 16


def test_prompts_of_a_group_share_what_the_workload_says_they_share() -> None:
    run = simulated(play_of(LoadOptions(rate=5), prefix_tokens=160, prefix_groups=2))
    assert sum(one.num_cached >= 160 for one in run.outcomes) >= 50


def test_figures_are_those_of_noria_bench() -> None:
    play = play_of(LoadOptions(rate=10))
    run = simulated(play)
    outcomes = bench_outcomes(run.outcomes, play.requests)
    assert {one.status for one in outcomes} == {Status.OK}
    summary = summarise(outcomes, parse_slo(()), samples(run.steps[0]))
    waits = [one.token_times_s[0] - one.arrival.at_s for one in run.outcomes]
    inside = [
        wait for wait, one in zip(waits, run.outcomes, strict=True) if summary.window.holds(one.arrival.at_s)
    ]
    assert summary.figures["ttft_slo"].mean.value == pytest.approx(np.mean(inside))
    assert summary.figures["send_lag"].maximum == 0
    assert summary.load is not None and 0 < summary.load.kv_util_mean < 1


def test_what_cannot_be_simulated_is_said() -> None:
    with pytest.raises(ConfigError, match="which is not simulated"):
        Driver(play_of(LoadOptions(rate=5, max_concurrency=2)), 0)
