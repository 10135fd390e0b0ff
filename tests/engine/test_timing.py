"""The self-timing at start: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from noria import LLM, SamplingParams
from noria.config.asked import EngineOptions
from noria.config.engine import StepCost
from noria.config.parse import from_mapping
from noria.config.step_budget import fit_cost
from noria.core.clock import VirtualClock
from noria.core.plan import StepPlan, StepResult
from noria.engine.build import load_engine, start_engine
from noria.engine.opening import open_model
from noria.engine.timing import time_steps
from noria.kernels.native.support import machine_obstacle
from noria.sampling.token_masks import Masks
from support_engine import engine_config
from support_models import cached_checkpoint

BACKENDS = ["torch"] + ([] if machine_obstacle() else ["native"])


class PricedRunner:
    """Computes nothing, in the time that a cost says; a step that is larger than all before takes 10 ms more."""

    def __init__(self, clock: VirtualClock, cost: StepCost) -> None:
        self.known: set[str] = set()
        self.plans: list[StepPlan] = []
        self._clock = clock
        self._cost = cost
        self._longest = 0

    def launch(self, plan: StepPlan) -> StepPlan:
        self.known -= set(plan.departures)
        self.known |= {request.request_id for request in plan.arrivals}
        self.plans.append(plan)
        return plan

    def collect(self, plan: StepPlan, masks: Masks | None = None) -> StepResult:
        for work in plan.work:
            seconds = self._cost.fixed_s + self._cost.seconds(work.num_new, work.num_computed)
            self._clock.advance(seconds if work.num_new <= self._longest else seconds + 0.01)
            self._longest = max(self._longest, work.num_new)
        return StepResult(plan.step, ())

    progress = 0

    def shutdown(self) -> None: ...


@pytest.mark.parametrize(
    "cost", [StepCost(0.1, 0.003, 0.0003, 4e-7), StepCost(0.1, 0.05, 0.01, 1e-5)], ids=["quick", "slow"]
)
def test_the_timing_tells_what_steps_cost(cost: StepCost) -> None:
    clock = VirtualClock()
    runner = PricedRunner(clock, cost)
    config = engine_config(num_blocks=1000, block_size=16, max_model_len=8192)
    found = fit_cost(time_steps(runner, clock, config))
    total_s = cost.fixed_s + cost.seconds(64, 0)
    assert found.fixed_s + found.seconds(64, 0) == pytest.approx(total_s, rel=0.5)
    assert found.pair_s == pytest.approx(cost.pair_s, rel=0.5)
    assert runner.known == set()


def test_a_quick_machine_is_done_with_it_in_about_a_tenth_of_a_second() -> None:
    clock = VirtualClock()
    runner = PricedRunner(clock, StepCost(0.1, 0.003, 0.0003, 4e-7))
    time_steps(runner, clock, engine_config(num_blocks=1000, block_size=16, max_model_len=8192))
    assert 0.05 < clock.now() < 0.18  # of which 0.03 are what first steps take more


@pytest.mark.parametrize("slowness", [1, 5, 50])
def test_two_sizes_are_timed_on_however_slow_a_machine(slowness: int) -> None:
    """One alone does not tell what tokens cost from what the step does."""
    clock = VirtualClock()
    cost = StepCost(0.1, 0.01 * slowness, 0.0007 * slowness, 0.0)
    runner = PricedRunner(clock, cost)
    times = time_steps(runner, clock, engine_config(num_blocks=1000, block_size=16, max_model_len=8192))
    assert {16, 64} <= {time.num_new for time in times if not time.num_computed}
    found = fit_cost(times)
    assert (found.fixed_s, found.token_s) == (pytest.approx(cost.fixed_s), pytest.approx(cost.token_s))


def test_a_pool_of_a_few_tokens_is_not_left() -> None:
    clock = VirtualClock()
    config = engine_config(num_blocks=3, block_size=4)
    runner = PricedRunner(clock, StepCost(0.1, 0.001, 0.0001, 0.0))
    times = time_steps(runner, clock, config)
    assert {(time.num_new, time.num_computed) for time in times} == {(12, 0)}
    assert {block for plan in runner.plans for work in plan.work for block in work.new_blocks} == {0, 1, 2}


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_engine_that_was_timed_answers_as_one_that_was_not(backend: str) -> None:
    """Its blocks are all free, no prefix is known, and what the timing left in them is never read."""
    model = cached_checkpoint("llama", head_dim=8)
    prompts = ["the fox", "the water wheel turns " * 9, "0 1 2 3 4 5 6 7 8 9 " * 6]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=1)
    settings = {"backend": backend, "max_model_len": 256, "num_gpu_blocks_override": 64}
    answers, steps = [], []
    for stated in ({}, {"max_num_batched_tokens": 2048}, {"max_num_batched_tokens": 16}):
        with LLM(model, show_progress=False, **settings, **stated) as llm:
            stats = llm.client.stats()
            assert (stats.num_blocks_used, stats.num_blocks_cached, stats.step) == (0, 0, 0)
            results = llm.generate(prompts, params, show_progress=False)
            answers.append([(r.outputs[0].token_ids, r.outputs[0].logprobs) for r in results])
            assert [result.num_cached_tokens for result in results] == [0, 0, 0]
            steps.append(llm.resolved.config.scheduler)
    assert answers[0] == answers[1] == answers[2]
    assert steps[0].step_cost is not None
    assert steps[0].max_num_batched_tokens % 16 == 0
    assert [(step.step_cost, step.max_num_batched_tokens) for step in steps[1:]] == [(None, 2048), (None, 16)]


def test_the_settings_are_told_before_the_timing_and_settled_after_it() -> None:

    path: Path = cached_checkpoint("llama")
    options = from_mapping(EngineOptions, {"model": str(path), "num_gpu_blocks_override": 8})
    told = []
    engine = start_engine(load_engine(open_model(options.model), options, told.append))
    engine.client.shutdown()
    assert [resolved.is_step_open for resolved in told] == [True]
    reason = next(c.reason for c in engine.resolved.choices if c.name == "max_num_batched_tokens")
    assert "(measured " in reason and " ms for " in reason
    assert not engine.resolved.is_step_open
