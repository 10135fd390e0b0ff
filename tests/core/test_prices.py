"""A step that is limited by time: a token costs what it was timed to take, and that grows with its context."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import LatencyTarget, SchedulerConfig, StepCost
from noria.core.plan import StepPlan
from noria.core.policies import choose_prices
from noria.core.prices import TokenPrices
from noria.core.time_prices import TimePrices
from support_engine import Harness, engine_config, solo_output

# A step of 8 ms, and a token 1 ms and one more for every 500 tokens of context. Of the 100 ms that a gap should take
# some are held back, and more as long as steps were not seen; where nobody decodes, a step may take four times as long.
COST = StepCost(target_s=0.1, fixed_s=0.008, token_s=0.001, pair_s=0.000002)
STEP_S = 0.096 / 1.15 - COST.fixed_s
ALONE_S = 4 * 0.096 / 1.15 - COST.fixed_s

costs = st.builds(
    StepCost,
    target_s=st.just(0.1),
    fixed_s=st.floats(0, 0.09),
    token_s=st.floats(1e-7, 0.01),
    pair_s=st.just(0.0) | st.floats(1e-9, 1e-5),
)


def planned_s(plan: StepPlan) -> float:
    return COST.fixed_s + sum(COST.seconds(work.num_new, work.num_computed) for work in plan.work)


def prices_of(harness: Harness) -> TimePrices:
    prices = harness.scheduler._policies.prices
    assert isinstance(prices, TimePrices)
    return prices


def timed_harness(**scheduler: object) -> Harness:
    """Its machine takes for a step just what that costs."""
    settings = {"num_blocks": 2000, "block_size": 16, "max_num_batched_tokens": 2048, "max_model_len": 8000}
    harness = Harness(engine_config(**(settings | {"step_cost": COST} | scheduler)))
    harness.pause_s = 0.0
    harness.runner.during = lambda plan: harness.clock.advance(planned_s(plan))
    return harness


@given(costs, st.integers(1, 2048), st.integers(0, 10_000))
def test_the_price_of_some_tokens_buys_just_those(cost: StepCost, num_new: int, num_computed: int) -> None:
    prices = TimePrices(SchedulerConfig(2048, 64, 20_000, step_cost=cost))
    price = prices.of(num_new, num_computed)
    bought = prices.tokens(price, num_computed)
    assert bought >= num_new
    assert prices.of(bought, num_computed) <= price + 2  # rounding, in nanoseconds


@given(costs, st.integers(1, 500), st.integers(1, 500), st.integers(0, 5000))
def test_two_chunks_cost_what_they_cost_as_one(
    cost: StepCost, first: int, second: int, computed: int
) -> None:
    prices = TimePrices(SchedulerConfig(2048, 64, 20_000, step_cost=cost))
    apart = prices.of(first, computed) + prices.of(second, computed + first)
    assert abs(apart - prices.of(first + second, computed)) <= 2


def test_where_tokens_were_stated_they_are_the_price() -> None:
    prices = choose_prices(SchedulerConfig(512, 8, 1000))
    assert isinstance(prices, TokenPrices)
    assert (prices.step, prices.of(7, 900), prices.tokens(7, 900)) == (512, 7, 7)


def decoding_harness(**scheduler: object) -> Harness:
    """With a request that decodes for long, so there are gaps to keep."""
    harness = timed_harness(**scheduler)
    harness.add("decode", [1, 2], max_tokens=400)
    harness.step()
    return harness


def test_beside_answers_the_chunks_of_a_long_prompt_shrink_as_its_context_grows_so_that_steps_stay_short() -> (
    None
):
    harness = decoding_harness()
    prompt = [i % 40 for i in range(3000)]
    harness.add("long", prompt, max_tokens=2)
    first = len(harness.runner.plans)
    harness.run()
    plans = [plan for plan in harness.runner.plans[first:] if plan.work]
    chunks = [work.num_new for plan in plans for work in plan.work if work.request_id == "long"]
    left_s = STEP_S - COST.seconds(1, 2)
    assert chunks[0] == COST.tokens_within(left_s, 0)
    assert chunks[-4] < chunks[0] / 4
    assert all(planned_s(plan) <= 0.096 + 1e-6 for plan in plans)
    assert sum(planned_s(plan) > 0.09 for plan in plans) > 20
    assert harness.output("long") == solo_output(prompt, 2)


def test_where_nobody_decodes_a_long_prompt_is_read_in_larger_chunks() -> None:
    harness = timed_harness()
    prompt = [i % 40 for i in range(3000)]
    harness.add("long", prompt, max_tokens=2)
    harness.run()
    chunks = [plan.work[0].num_new for plan in harness.runner.plans if plan.work]
    assert chunks[0] == COST.tokens_within(ALONE_S, 0)
    assert all(planned_s(plan) <= COST.fixed_s + ALONE_S + 1e-6 for plan in harness.runner.plans)
    assert harness.output("long") == solo_output(prompt, 2)


def test_short_prompts_share_a_timed_step_with_a_long_one_that_gets_half() -> None:
    harness = timed_harness()
    harness.add("long", [i % 40 for i in range(3000)], max_tokens=1)
    harness.step(2)
    for name in ("a", "b"):
        harness.add(name, [ord(name) % 40] * 20, max_tokens=1)
    harness.step()
    work = {entry.request_id: entry for entry in harness.runner.plans[-1].work}
    assert harness.output("a") == solo_output([ord("a") % 40] * 20, 1)
    assert (work["a"].num_new, work["b"].num_new) == (20, 20)
    spent_s = COST.seconds(work["long"].num_new, work["long"].num_computed)
    one_more_s = COST.seconds(work["long"].num_new + 1, work["long"].num_computed)
    assert spent_s <= ALONE_S - 2 * COST.seconds(20, 0) + 1e-6 < one_more_s


def test_a_prompt_behind_a_cached_prefix_pays_for_the_context_that_it_finds() -> None:
    harness = timed_harness()
    prefix = [i % 40 for i in range(3200)]
    harness.add("first", prefix, max_tokens=1)
    harness.run()
    harness.add("second", [*prefix, *([7] * 200)], max_tokens=1)
    harness.step()
    (work,) = harness.runner.plans[-1].work
    assert work.num_computed == 3200
    assert work.num_new == COST.tokens_within(ALONE_S, 3200)


def test_decodes_all_advance_in_every_step_and_prompts_still_get_their_part() -> None:
    """A hundred decodes take longer than the step's target, and a newcomer still joins at once."""
    harness = timed_harness(max_num_seqs=128)
    for i in range(100):
        harness.add(f"d{i}", [i % 40] * 2, max_tokens=60)
    while len(harness.scheduler.running) < 100 or any(r.num_pending > 1 for r in harness.scheduler.running):
        harness.step()
    harness.add("late", [1, 2, 3] * 30, max_tokens=1)
    harness.step()
    work = {entry.request_id: entry.num_new for entry in harness.runner.plans[-1].work}
    assert sum(1 for name in work if name.startswith("d")) == 100
    assert work["late"] == COST.tokens_within(prices_of(harness).step * 1e-9 / 4, 0) > 0
    harness.run()
    assert harness.output("late") == solo_output([1, 2, 3] * 30, 1)


def test_a_context_that_makes_one_token_dearer_than_a_step_is_computed_a_token_at_a_time() -> None:
    dear = StepCost(target_s=0.1, fixed_s=0.0, token_s=0.001, pair_s=0.01)
    harness = timed_harness(step_cost=dear, latency=LatencyTarget(itl_s=0.1))
    prompt = [i % 40 for i in range(40)]
    harness.add("decode", [1, 2], max_tokens=100)
    harness.step()
    harness.add("a", prompt, max_tokens=3)
    harness.run()
    assert harness.output("a") == solo_output(prompt, 3)
    chunks = [work.num_new for plan in harness.runner.plans for work in plan.work if work.request_id == "a"]
    assert chunks[-10:] == [1] * 10
