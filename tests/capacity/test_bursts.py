"""Steps as large as a search tries are among those that a step model is learnt from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noria.capacity.bursts import MOST_SEQS, MOST_TOKENS, Burst, burst, bursts, wide_options
from noria.capacity.measured import measured_steps
from noria.config.asked import EngineOptions, SchedulerOptions
from noria.config.engine import EngineConfig, StepCost
from noria.core.clock import MonotonicClock
from noria.engine.in_process import InProcessClient
from noria.engine.making import make_loop
from noria.engine.records import Recorder
from noria.tuning.space import NUM_SEQS, STEP_TOKENS
from support_engine import engine_config
from support_ledger_runner import LedgerRunner


def small_steps(token_s: float | None = None) -> EngineConfig:
    config = engine_config(
        num_blocks=4000, block_size=16, max_num_seqs=128, max_num_batched_tokens=256, max_model_len=4096
    )
    cost = None if token_s is None else StepCost(0.1, 0.01, token_s, 0.0)
    return replace(config, scheduler=replace(config.scheduler, step_cost=cost))


def test_bursts_reach_the_corner_of_what_is_searched_the_smallest_first() -> None:
    planned = bursts(small_steps(), 10.0)
    assert (NUM_SEQS[-1], STEP_TOKENS[-1]) == (MOST_SEQS, MOST_TOKENS)
    steps = [one.num_seqs * one.prompt_tokens for one in planned]
    assert {512, 1024, 2048, 4096, 8192, 16384} <= set(steps)
    assert {one.num_seqs for one in planned} >= {256, 512}
    assert max(one.prompt_tokens for one in planned) == 2048
    assert [one.num_tokens for one in planned] == sorted(one.num_tokens for one in planned)


def test_what_would_take_too_long_is_left_out() -> None:
    planned = bursts(small_steps(token_s=1e-3), 10.0)
    assert 2500 < max(one.num_tokens for one in planned) <= 5000
    assert bursts(small_steps(token_s=10.0), 10.0) == []
    many = replace(small_steps(), scheduler=replace(small_steps().scheduler, max_num_seqs=512))
    assert bursts(many, 10.0) == [
        Burst(1, 512),
        Burst(1, 1024),
        Burst(1, 2048),
        Burst(2, 2048),
        Burst(4, 2048),
        Burst(8, 2048),
    ]


@pytest.mark.parametrize(("length", "longest"), [(64, 32), (16, 8), (7, 3), (5, 1)])
def test_bursts_in_a_short_context_are_of_no_more_requests_than_are_tried_and_fit_into_it(
    length: int, longest: int
) -> None:
    planned = bursts(with_length(length), 10.0)
    assert planned[-1] == Burst(512, longest)
    assert max(one.prompt_tokens for one in planned) == longest <= length - 4
    assert len(set(planned)) == len(planned)


def test_a_context_that_holds_no_prompt_beside_its_answer_has_no_bursts() -> None:
    assert bursts(with_length(4), 10.0) == []


def with_length(length: int) -> EngineConfig:
    return replace(small_steps(), scheduler=replace(small_steps().scheduler, max_model_len=length))


def test_the_engine_of_bursts_has_room_for_each_and_not_more() -> None:
    asked = EngineOptions()
    wide = wide_options(asked, small_steps(), [Burst(1, 512), Burst(512, 8), Burst(2, 2048)])
    assert (wide.scheduler.max_num_seqs, wide.scheduler.max_num_batched_tokens) == (512, 4096)
    assert wide.memory.max_model_len == 2052
    assert wide.memory.num_gpu_blocks_override == 512  # a block for each short one, 258 for the long ones
    assert wide.model == asked.model


def test_the_engine_of_bursts_keeps_no_limit_that_would_bound_its_steps() -> None:
    asked = EngineOptions(scheduler=SchedulerOptions(itl_slo_ms=50.0, ttft_slo_ms=500.0))
    wide = wide_options(asked, small_steps(), [Burst(8, 2048)])
    assert (wide.scheduler.itl_slo_ms, wide.scheduler.ttft_slo_ms) == (None, None)
    assert wide.scheduler.max_num_batched_tokens == 16384


class Passing(MonotonicClock):
    """A second later with each look."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        self._now_s += 1.0
        return self._now_s


def sizes_of_steps(planned: list[Burst], seconds: float) -> list[tuple[int, int]]:
    """Requests and tokens of each step."""
    config = engine_config(
        num_blocks=2000, block_size=16, max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=2048
    )
    recorder, runner = Recorder(), LedgerRunner(config.cache.block_size)
    client = InProcessClient(
        lambda publish: make_loop(config, runner, MonotonicClock(), recorder, publish), config
    )
    try:
        burst(client, config.model.vocab_size, planned, seconds, Passing())
        stats = client.stats()
    finally:
        client.shutdown()
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_used) == (0, 0, 0)
    steps = measured_steps(recorder.steps())
    return [(one.features.num_seqs, one.features.num_tokens) for one in steps]


def test_a_burst_is_read_in_one_step_and_decodes_together() -> None:
    sizes = sizes_of_steps([Burst(64, 8), Burst(1, 1024)], 9.0)
    assert sizes == [(64, 512), *[(64, 64)] * 3, (1, 1024), *[(1, 1)] * 3, (64, 512), *[(64, 64)] * 3]


def test_none_is_begun_that_would_take_longer_than_the_time_that_is_left() -> None:
    """The first took a second, the next has a hundred times its tokens."""
    assert set(sizes_of_steps([Burst(1, 8), Burst(1, 1097)], 20.0)) == {(1, 8), (1, 1)}
    assert sizes_of_steps([Burst(1, 8)], 0.5) == []
