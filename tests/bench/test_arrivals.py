"""Schedules: fixed before the load begins, and never bent to a round number."""

from __future__ import annotations

import numpy as np
import pytest

from noria.bench.arrivals import Ramp, Scaling, arrivals, arrivals_within, mean_rate, scaled, unit_arrivals
from noria.bench.play import make_play, num_requests
from noria.bench.workload import make_workload
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError


def test_the_count_of_poisson_arrivals_varies_as_it_should() -> None:
    """Rescaled to the exact duration it would not vary at all."""
    ramp = Ramp(5.0, 5.0, 1.0)
    counts = np.array([len(arrivals_within(40.0, ramp, 1.0, seed)) for seed in range(400)])
    assert counts.mean() == pytest.approx(200, rel=0.02)
    assert counts.var() == pytest.approx(200, rel=0.2)


def test_intervals_of_poisson_arrivals_are_exponential() -> None:
    between = np.diff(arrivals(20_000, 4.0, 1.0, seed=1))
    assert between.mean() == pytest.approx(0.25, rel=0.03)
    assert between.std() == pytest.approx(0.25, rel=0.03)
    assert np.quantile(between, 0.5) == pytest.approx(0.25 * np.log(2), rel=0.05)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_is_the_shape_of_a_gamma_and_leaves_the_rate(burstiness: float) -> None:
    between = np.diff(arrivals(40_000, 2.0, burstiness, seed=2))
    assert between.mean() == pytest.approx(0.5, rel=0.04)
    assert between.std() / between.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_two_rates_with_one_seed_differ_in_their_rate_alone() -> None:
    slow, fast = arrivals(100, 1.0, 0.5, seed=3), arrivals(100, 4.0, 0.5, seed=3)
    assert np.allclose(slow, 4 * fast)
    assert not np.allclose(slow, arrivals(100, 1.0, 0.5, seed=4))


@pytest.mark.parametrize("is_exponential", [False, True])
def test_a_ramp_has_its_rate_at_both_ends(is_exponential: bool) -> None:
    ramp = Ramp(10.0, 40.0, 100.0, is_exponential)
    times = ramp.times(unit_arrivals(20_000, 1.0, seed=5))
    assert np.all(np.diff(times) > 0)
    for start, end, rate in ((0, 5, 10.5), (95, 100, 39.0), (120, 200, 40.0)):
        expected = rate * (end - start)
        assert np.sum((times >= start) & (times < end)) == pytest.approx(expected, abs=4 * expected**0.5)
    middle = 20.0 if is_exponential else 25.0
    assert np.sum((times >= 48) & (times < 52)) == pytest.approx(4 * middle, abs=4 * (4 * middle) ** 0.5)


def test_a_falling_ramp_and_a_level_one_are_ramps_too() -> None:
    falling = Ramp(40.0, 10.0, 10.0).times(np.arange(1.0, 400.0))
    assert np.all(np.diff(falling) > 0)
    assert falling[249] == pytest.approx(10.0)  # (40 + 10) / 2 * 10 arrivals by then
    assert np.allclose(Ramp(2.0, 2.0, 10.0).times(np.arange(10.0)), np.arange(10.0) / 2)


TRACE = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 10.0, 10.1, 10.2, 15.0])


def test_compressing_a_trace_keeps_its_bursts() -> None:
    times, picks = scaled(TRACE, 1.2, Scaling.COMPRESS, seed=0)
    assert np.allclose(times, TRACE / 2)
    assert picks == list(range(10))
    assert mean_rate(times) == pytest.approx(1.2)


def test_thinning_a_trace_keeps_its_instants() -> None:
    long = np.arange(10_000) / 10
    times, picks = scaled(long, 2.5, Scaling.THIN, seed=0)
    assert np.array_equal(times, long[picks])
    assert len(picks) == pytest.approx(2500, rel=0.06)


def test_no_scaling_says_a_rate_that_it_does_not_send() -> None:
    """From far below the trace's own rate to far above it: at the rate, or refused."""
    long = np.arange(4000) / 10
    for scaling in Scaling:
        for rate in (1.0, 5.0, 10.0):
            assert mean_rate(scaled(long, rate, scaling, seed=0)[0]) == pytest.approx(rate, rel=0.1)
        if scaling is Scaling.THIN:
            with pytest.raises(ConfigError, match="trace of 10 requests/s cannot be thinned to 30"):
                scaled(long, 30.0, scaling, seed=0)
        else:
            assert mean_rate(scaled(long, 30.0, scaling, seed=0)[0]) == pytest.approx(30.0, rel=0.1)


def test_resampling_a_trace_draws_requests_and_lets_them_come_by_chance() -> None:
    long = np.arange(5000) / 10
    times, picks = scaled(long, 3.0, Scaling.RESAMPLE, seed=0)
    assert mean_rate(times) == pytest.approx(3.0, rel=0.06)
    assert len(set(picks)) == pytest.approx(5000 * (1 - np.exp(-1)), rel=0.05)


def play(load: dict[str, object], count: int = 50, **workload: object):
    made = make_workload(WorkloadOptions(**workload), count, None, None)
    return make_play(made, LoadOptions(**load), seed=7)


def test_an_open_loop_has_every_instant_before_it_begins() -> None:
    made = play({"rate": 2.0})
    assert [index for _, index in made.due] == list(range(50))
    assert np.allclose([time_s for time_s, _ in made.due], arrivals(50, 2.0, 1.0, seed=7))
    assert not made.is_closed


def test_without_a_rate_the_loop_is_closed() -> None:
    made = play({})
    assert made.is_closed
    assert made.max_concurrency == 16
    assert play({"max_concurrency": 3}).max_concurrency == 3


def test_turns_follow_each_other_and_count_in_the_rate() -> None:
    made = play({"rate": 3.0}, count=3000, turns="3")
    assert made.followers[0] == 1
    assert made.followers[1] == 2
    assert 2 not in made.followers
    assert len(made.due) == 1000
    assert made.due[-1][0] == pytest.approx(1000, rel=0.1)  # 3000 requests at 3 a second


def test_a_duration_ends_the_schedule_and_not_the_count() -> None:
    options = LoadOptions(rate=5.0, duration=10.0)
    made = play({"rate": 5.0, "duration": 10.0}, count=num_requests(options, is_trace=False) or 0)
    times = [time_s for time_s, _ in made.due]
    assert max(times) < 10.0
    assert len(times) == len(arrivals_within(10.0, Ramp(5.0, 5.0, 1.0), 1.0, seed=7))


@pytest.mark.parametrize(
    ("load", "message"), [({"ramp_to": 5.0}, "give --rate"), ({"until": "certain"}, "give --slo")]
)
def test_loads_that_cannot_be_meant_are_refused(load: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        play(load)
