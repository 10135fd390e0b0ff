"""A step is as long as a latency target lets it be, on the machine that there is."""

from __future__ import annotations

import random

import pytest

from noria.config.engine import LatencyTarget, SchedulerConfig, StepCost
from noria.core.time_prices import TimePrices
from support_engine import Harness, engine_config

COST = StepCost(target_s=0.1, fixed_s=0.01, token_s=0.001, pair_s=0.0)


def prices_for(
    target: LatencyTarget | None = None, most_tokens: int = 2048, cost: StepCost = COST
) -> TimePrices:
    return TimePrices(SchedulerConfig(most_tokens, 64, 4096, step_cost=cost, latency=target))


def taught(ratios: list[float], target: LatencyTarget) -> TimePrices:
    """Steps with one decode took that many times what was foretold."""
    prices, now_s = prices_for(target), 0.0
    prices.planned(prices.of(1, 0), 1, now_s)
    prices.done(now_s)
    for ratio in ratios:
        prices.planned(prices.of(40, 0), 1, now_s)
        now_s += ratio * 0.05
        prices.done(now_s)
    return prices


def tokens_of_a_step(prices: TimePrices) -> int:
    return prices.tokens(prices.step, 0)


def test_a_machine_that_keeps_its_word_fills_the_target() -> None:
    assert tokens_of_a_step(taught([1.0] * 300, LatencyTarget(itl_s=0.08))) == 66


def test_a_machine_half_as_fast_as_it_was_timed_gets_steps_half_as_long() -> None:
    assert tokens_of_a_step(taught([2.0] * 300, LatencyTarget(itl_s=0.08))) == 28


def test_a_machine_that_got_quicker_again_is_believed_after_a_while() -> None:
    assert tokens_of_a_step(taught([2.0] * 300 + [1.0] * 300, LatencyTarget(itl_s=0.08))) == 66


def test_nineteen_steps_in_twenty_keep_to_the_target_on_a_noisy_machine() -> None:
    draw = random.Random(1)
    prices = taught([draw.lognormvariate(0, 0.2) for _ in range(400)], LatencyTarget(itl_s=0.08))
    planned_s = 0.01 + 0.001 * tokens_of_a_step(prices)
    late = sum(planned_s * draw.lognormvariate(0, 0.2) > 0.08 for _ in range(2000)) / 2000
    assert 0.005 < late < 0.07


def test_a_stall_of_the_machine_does_not_count() -> None:
    ratios = [1.0] * 250 + [500.0] * 3
    assert tokens_of_a_step(taught(ratios, LatencyTarget(itl_s=0.08))) == 66


@pytest.mark.parametrize("ratio", [1e-9, 1e9])
def test_however_wrong_the_timing_was_something_goes_on(ratio: float) -> None:
    prices = taught([ratio] * 300, LatencyTarget(itl_s=0.08))
    assert 0 < prices.step <= 0.08 / 0.5 * 1e9
    assert prices.for_prompts(10**12, 100).price > 0


def test_alone_a_prompt_is_read_in_larger_pieces_but_not_past_the_wait_for_a_first_token() -> None:
    prices = taught([1.0] * 300, LatencyTarget(itl_s=0.08))
    assert prices.tokens(prices.for_prompts(0, 0).price, 0) == 297
    prices = taught([1.0] * 300, LatencyTarget(itl_s=0.08, ttft_s=0.4))
    assert prices.tokens(prices.for_prompts(0, 0).price, 0) == 190


def test_decodes_that_fill_a_step_are_joined_by_no_more() -> None:
    prices = taught([1.0] * 300, LatencyTarget(itl_s=0.08))
    assert prices.for_prompts(prices.of(50, 0), 50).takes_newcomers
    assert not prices.for_prompts(prices.of(60, 0), 60).takes_newcomers


def test_requests_wait_until_there_is_time_for_them_and_all_are_served() -> None:
    target = LatencyTarget(itl_s=0.02)
    harness = Harness(
        engine_config(num_blocks=400, max_num_seqs=64, step_cost=COST, latency=target, max_model_len=400)
    )
    for i in range(30):
        harness.add(f"r{i}", [i % 40] * 5, max_tokens=20)
    most = 0
    while harness.loop.has_work:
        harness.step()
        most = max(most, len(harness.scheduler.running))
    assert most <= 12
    assert all(len(harness.output(f"r{i}")) == 20 for i in range(30))


def test_at_first_two_steps_that_are_late_are_believed_at_once_and_one_is_not() -> None:
    kept, once, twice = (tokens_of_a_step(taught([3.0] * n, LatencyTarget(itl_s=0.08))) for n in range(3))
    assert kept == once == 56  # 0.08 * 0.96 / 1.15, less what a step costs
    assert twice == 15  # ... / 3


def test_steps_that_are_far_from_full_tell_nothing() -> None:
    prices = prices_for()
    before, now_s = tokens_of_a_step(prices), 0.0
    for _ in range(300):
        prices.planned(prices.of(5, 0), 5, now_s)
        now_s += 0.09  # six times what was foretold, and no gap is late for it
        prices.done(now_s)
    assert tokens_of_a_step(prices) == before


def test_decodes_that_are_dearer_than_foretold_are_still_kept_below_a_stated_limit() -> None:
    """However little of a full step they were foretold to take: nobody joins once they take what they may."""
    prices, now_s = prices_for(LatencyTarget(itl_s=0.1)), 0.0
    for num_decodes in range(1, 31):
        spent = prices.of(1, 0) * num_decodes
        if not prices.for_prompts(spent, num_decodes).takes_newcomers:
            break
        for _ in range(30):
            prices.planned(spent, num_decodes, now_s)
            now_s += 0.01 + 0.004 * num_decodes  # four times as long a token
            prices.done(now_s)
    assert 0.01 + 0.004 * num_decodes <= 0.1


@pytest.mark.parametrize("target", [None, LatencyTarget(itl_s=0.1)])
def test_steps_that_are_full_by_their_tokens_count(target: LatencyTarget | None) -> None:
    """A stated number of tokens keeps them far below what time would let them be."""
    prices, now_s = prices_for(target, most_tokens=30), 0.0
    for _ in range(300):
        prices.planned(prices.of(30, 0), 1, now_s)
        now_s += 4 * (0.01 + 30 * 0.001)
        prices.done(now_s)
    assert prices.slowness == pytest.approx(4.0)


def test_where_no_limit_was_stated_a_step_has_room_for_64_tokens_and_all_may_join() -> None:
    """However long its decodes take, and however much slower than it was timed the machine is."""
    prices, now_s = prices_for(), 0.0
    for _ in range(300):
        prices.planned(prices.of(90, 0), 90, now_s)
        now_s += 1.0
        prices.done(now_s)
    assert prices.slowness == 4.0
    assert tokens_of_a_step(prices) == 64
    share = prices.for_prompts(prices.of(100, 0), 100)
    assert share.takes_newcomers
    assert prices.tokens(share.price, 0) == 16
