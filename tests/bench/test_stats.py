"""Intervals cover what they promise to, on data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as reference

from noria.bench.stats import (
    Values,
    binomial_cdf,
    binomial_quantile,
    binomial_upper_tail,
    effective_count,
    lag_one,
    long_run_count,
    mean_interval,
    quantile_interval,
    rank_correlation,
)

NUM_RUNS = 400


def autoregressive(random: np.random.Generator, count: int, correlation: float) -> Values:
    """A stationary series of mean 0 and variance 1 whose lag-1 autocorrelation is `correlation`."""
    noise = random.normal(0, np.sqrt(1 - correlation**2), count)
    values = np.empty(count)
    values[0] = random.normal()
    for place in range(1, count):
        values[place] = correlation * values[place - 1] + noise[place]
    return values


def coverage(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_interval_of_a_mean_covers_it_though_values_hang_together(correlation: float) -> None:
    random = np.random.default_rng(1)
    hits = []
    for _ in range(NUM_RUNS):
        interval = mean_interval(autoregressive(random, 1000, correlation))
        hits.append(interval.low <= 0 <= interval.high)
    assert 0.92 <= coverage(hits) <= 0.98


@pytest.mark.parametrize(
    ("count", "quantile"), [(1000, 0.5), (1000, 0.95), (2000, 0.99), (300, 0.5), (300, 0.95)]
)
def test_the_interval_of_a_quantile_covers_it(count: int, quantile: float) -> None:
    random = np.random.default_rng(2)
    true = float(np.exp(0.6 * reference.norm.ppf(quantile)))
    hits = []
    for _ in range(NUM_RUNS):
        interval = quantile_interval(random.lognormal(0, 0.6, count), quantile)
        hits.append(interval.low <= true <= interval.high)
    assert 0.90 <= coverage(hits) <= 0.99


def test_the_interval_of_a_quantile_covers_it_though_values_hang_together() -> None:
    random = np.random.default_rng(3)
    true = float(reference.norm.ppf(0.9))
    hits = []
    for _ in range(NUM_RUNS):
        interval = quantile_interval(autoregressive(random, 2000, 0.6), 0.9)
        hits.append(interval.low <= true <= interval.high)
    assert coverage(hits) >= 0.93


@pytest.mark.parametrize(
    ("quantile", "count", "expected"),
    [(0.95, 300, 0.18), (0.95, 1000, 0.08), (0.95, 10_000, 0.025), (0.99, 10_000, 0.044)],
)
def test_half_widths_are_those_of_the_design(quantile: float, count: int, expected: float) -> None:
    """Of log-normal values with sigma 0.6, relative to the quantile, on average.

    (0.14 at 300 would cover too seldom.)
    """
    random = np.random.default_rng(4)
    found = []
    for _ in range(60):
        interval = quantile_interval(random.lognormal(0, 0.6, count), quantile)
        found.append(interval.half_width / interval.value)
    assert np.mean(found) == pytest.approx(expected, rel=0.25)


def test_correlated_values_count_as_fewer() -> None:
    random = np.random.default_rng(5)
    assert effective_count(random.normal(size=5000)) == pytest.approx(5000, rel=0.1)
    values = autoregressive(random, 20_000, 0.5)
    assert lag_one(values) == pytest.approx(0.5, abs=0.03)
    assert effective_count(values) == pytest.approx(20_000 / 3, rel=0.1)


def test_spells_within_which_values_alternate_tell_no_more_than_spells() -> None:
    """As behind two replicas that take turns while one of them stalls: neighbours alone seem to know nothing of each
    other."""
    spells = np.tile(np.concatenate([np.zeros(260), np.tile([1.0, 0.0], 20)]), 5)
    assert lag_one(spells) == 0.0
    assert long_run_count(spells) < len(spells) / 10
    assert long_run_count(np.tile([0.0, 1.0], 200)) == 400  # without spells all of them count


@pytest.mark.parametrize("value", [0.1, 1e-9, 3.0])
def test_values_that_are_all_the_same_hang_together_with_nothing(value: float) -> None:
    assert effective_count(np.full(73, value)) == 73


def test_values_that_are_all_the_same_have_an_interval_of_no_width() -> None:
    interval = mean_interval(np.full(100, 3.0))
    assert (interval.value, interval.low, interval.high) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_values_have_no_interval(count: int) -> None:
    interval = quantile_interval(np.arange(count, dtype=np.float64), 0.5)
    assert np.isnan(interval.low)
    assert np.isnan(interval.high)


@pytest.mark.parametrize(
    ("successes", "trials", "probability"), [(0, 59, 0.05), (5, 208, 0.05), (40, 1000, 0.05), (3, 9, 0.5)]
)
def test_binomial_tails_are_those_of_the_reference(successes: int, trials: int, probability: float) -> None:
    expected = reference.binom(trials, probability)
    assert binomial_cdf(successes, trials, probability) == pytest.approx(expected.cdf(successes), rel=1e-9)
    assert binomial_upper_tail(successes, trials, probability) == pytest.approx(
        expected.sf(successes - 1), rel=1e-9
    )
    for share in (0.025, 0.5, 0.975):
        assert binomial_quantile(share, trials, probability) == expected.ppf(share)


def test_values_that_differ_by_rounding_alone_have_one_rank() -> None:
    """Sums of the same steps in another order: 0.1 + 0.2 is not 0.3."""
    times = np.arange(20.0)
    rising_by_noise = 0.3 + times * 1e-16
    assert len(set(rising_by_noise)) > 1
    assert rank_correlation(rising_by_noise, times) == 0.0
    steps = np.where(times < 10, 0.3, 0.4)
    assert rank_correlation(steps + times * 1e-16, times) == pytest.approx(rank_correlation(steps, times))
    assert rank_correlation(times * 1e-16, times) == pytest.approx(1.0)


def test_rank_correlation_is_that_of_the_reference_with_ties() -> None:
    random = np.random.default_rng(6)
    first = random.integers(0, 5, 40).astype(np.float64)
    second = first + random.integers(0, 4, 40)
    assert rank_correlation(first, second) == pytest.approx(reference.spearmanr(first, second).statistic)


def test_values_that_differ_only_by_how_they_were_rounded_are_as_good_as_independent() -> None:
    values = 0.02 + 1e-15 * np.arange(90)
    assert effective_count(values) == 90
