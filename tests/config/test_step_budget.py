"""What a step computes where nobody stated it: from timings to settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import FEWEST_TOKENS, LatencyTarget, StepCost
from noria.config.errors import ConfigError
from noria.config.report import late_rows, render, startup_table
from noria.config.resolved import Resolved
from noria.config.step_budget import StepTime, fit_cost, settle_step
from support_config import hardware, resolved

SIZES = ((16, 0), (64, 0), (256, 0), (16, 2048))


def timed(cost: StepCost, sizes: tuple[tuple[int, int], ...] = SIZES, noise: float = 1.0) -> list[StepTime]:
    """The times that a machine of that cost gives, all of them longer by a factor."""
    return [StepTime(n, c, noise * (cost.fixed_s + cost.seconds(n, c))) for n, c in sizes]


def settled(cost: StepCost, **asked: object) -> Resolved:
    return settle_step(resolved(asked), timed(cost))


def test_where_nobody_states_a_step_it_aims_at_a_tenth_of_a_second_beside_answers() -> None:
    result = settled(StepCost(0.1, 0.01, 0.0003, 0.0))
    scheduler = result.config.scheduler
    assert (scheduler.max_num_batched_tokens, scheduler.full_step_tokens) == (2048, 300)  # (100 - 10) / 0.3
    assert scheduler.step_cost is not None and scheduler.step_cost.target_s == 0.1
    assert not result.is_step_open
    (row,) = late_rows(result)
    assert (row.name, row.value) == ("max_num_batched_tokens", "2048")
    assert (
        row.note
        == "at most; about 300 beside answers, for 100 ms, corrected while running (measured 86.8 ms for 256 tokens)"
    )
    assert row in startup_table(result)
    assert render([row], startup_table(result)) in render(startup_table(result))


def test_before_the_timing_the_table_says_what_is_open() -> None:
    before = resolved()
    assert before.is_step_open
    assert before.config.scheduler.max_num_batched_tokens == 2048
    assert "2048  at most; timed once the weights are in memory" in render(startup_table(before))


@pytest.mark.parametrize(
    "asked",
    [
        {"max_num_batched_tokens": 512},
        {"max_num_batched_tokens": 2048},
        {"enable_chunked_prefill": False, "max_model_len": 1000},
    ],
)
def test_a_stated_step_and_whole_prompts_are_not_timed(asked: dict[str, object]) -> None:
    result = resolved(asked)
    assert not result.is_step_open
    assert result.config.scheduler.max_num_batched_tokens == asked.get("max_num_batched_tokens", 2048)
    assert late_rows(result) == []
    assert "tokens in one step at most" in render(startup_table(result))


def test_a_quick_machine_computes_no_more_than_memory_was_laid_out_for() -> None:
    result = settled(StepCost(0.1, 0.001, 0.000001, 0.0))
    scheduler = result.config.scheduler
    assert scheduler.max_num_batched_tokens == scheduler.full_step_tokens == 2048
    assert "at most, which takes about 3 ms, corrected" in late_rows(result)[0].note


@pytest.mark.parametrize("asked", [{}, {"max_num_seqs": 8}, {"max_num_seqs": 1, "block_size": 256}])
def test_on_a_slow_machine_a_step_still_has_room_for_64_tokens_of_prompts(asked: dict[str, object]) -> None:
    result = settled(StepCost(0.1, 0.05, 0.005, 0.0), **asked)
    scheduler = result.config.scheduler
    cost = scheduler.step_cost
    assert cost is not None
    assert cost.target_s == pytest.approx(0.05 + 64 * 0.005)
    assert scheduler.full_step_tokens == FEWEST_TOKENS
    assert "about 64 beside answers, for 370 ms" in late_rows(result)[0].note


WHOLE = {"enable_chunked_prefill": False, "max_model_len": 200}


def encoder_of(cost: StepCost) -> Resolved:
    """Settings of an engine whose prompts are never cut, before the timing left open."""
    before = resolved(WHOLE | {"max_num_batched_tokens": 2048})
    return settle_step(before, timed(cost, ((16, 0), (64, 0))))


def test_where_prompts_are_whole_a_step_is_a_number_of_tokens_in_whole_blocks() -> None:
    result = encoder_of(StepCost(0.1, 0.01, 0.0003, 0.0))
    scheduler = result.config.scheduler
    assert scheduler.max_num_batched_tokens == scheduler.full_step_tokens == 288
    assert "tokens: a full step takes about 96 ms" in late_rows(result)[0].note


def test_whole_prompts_fit_a_step_whatever_it_takes() -> None:
    result = encoder_of(StepCost(0.1, 0.05, 0.005, 0.0))
    assert result.config.scheduler.max_num_batched_tokens == 208  # whole blocks that hold 200
    assert "as many as max_model_len; shorter ones take 64 of them, about 370 ms" in late_rows(result)[0].note


# A context of at least 500 tokens before a token costs twice as much: shorter than that in no model.
costs = st.builds(
    lambda fixed_s, token_s, share: StepCost(0.1, fixed_s, token_s, share * token_s),
    fixed_s=st.floats(0, 0.05),
    token_s=st.floats(1e-5, 1e-2),
    share=st.floats(0, 1 / 500),
)


@given(costs)
def test_a_cost_is_found_again_in_its_timings(cost: StepCost) -> None:
    found = fit_cost(timed(cost))
    for num_new, num_computed in (*SIZES, (100, 1000)):
        seconds = cost.fixed_s + cost.seconds(num_new, num_computed)
        assert found.fixed_s + found.seconds(num_new, num_computed) == pytest.approx(seconds, rel=0.02)


@given(costs, st.lists(st.floats(1.0, 10.0), min_size=1, max_size=4))
def test_repeats_that_something_held_up_change_nothing(cost: StepCost, delays: list[float]) -> None:
    quiet = timed(cost)
    noisy = [time for delay in delays for time in timed(cost, noise=delay)]
    assert fit_cost([*noisy, *quiet]) == fit_cost(quiet)


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.floats(1e-6, 2.0)), max_size=12), st.floats(1e-6, 2.0))
def test_any_timings_whatever_give_steps_within_bounds(
    times: list[tuple[tuple[int, int], float]], first_s: float
) -> None:
    steps = [StepTime(16, 0, first_s), *(StepTime(n, c, seconds) for (n, c), seconds in times)]
    result = settle_step(resolved({"max_num_seqs": 48}, hardware(num_cpus=2)), steps)
    scheduler = result.config.scheduler
    assert scheduler.max_num_batched_tokens == 2048
    assert FEWEST_TOKENS <= scheduler.full_step_tokens <= 2048
    cost = scheduler.step_cost
    assert cost is not None
    assert cost.token_s > 0 and cost.fixed_s >= 0 and cost.pair_s >= 0
    assert cost.tokens_within(cost.target_s - cost.fixed_s, 0) >= FEWEST_TOKENS


def test_a_larger_step_that_was_timed_shorter_counts_as_noise() -> None:
    """The longest time a token is what holds: steps come out too short rather than too long."""
    cost = fit_cost([StepTime(16, 0, 0.05), StepTime(64, 0, 0.04)])
    assert (cost.fixed_s, cost.token_s) == (0.0, 0.05 / 16)


def test_a_latency_target_leaves_the_most_tokens_and_gives_each_step_a_price() -> None:
    before = resolved({"itl_slo_ms": 50, "ttft_slo_ms": 900, "max_num_batched_tokens": 1024})
    assert before.is_step_open
    scheduler = settle_step(before, [StepTime(16, 0, 0.02), StepTime(256, 0, 0.26)]).config.scheduler
    assert scheduler.max_num_batched_tokens == 1024
    assert scheduler.latency == LatencyTarget(itl_s=0.05, ttft_s=0.9)
    assert (scheduler.gap_s, replace(scheduler, latency=None).gap_s) == (0.05, 0.1)
    assert scheduler.full_step_tokens == 46  # 4 ms besides tokens, and 1 ms each


def test_a_latency_target_needs_prompts_that_may_be_cut() -> None:
    asked = {"itl_slo_ms": 50, "enable_chunked_prefill": False, "max_model_len": 1024}
    with pytest.raises(ConfigError, match=r"as long as prompts are: --itl-slo-ms.*--enable-chunked-prefill"):
        resolved(asked)
