from __future__ import annotations

from dataclasses import replace
from typing import Any

from noria.config.engine import LatencyTarget, QueueConfig, StepCost
from noria.config.queue_limits import settle_queue
from noria.config.resolved import Resolved
from noria.config.serving import QueueOptions
from support_config import resolved as resolve_all


def _resolved(**scheduler: Any) -> Resolved:
    before = resolve_all()
    config = replace(before.config, scheduler=replace(before.config.scheduler, **scheduler))
    return replace(before, config=config)


def test_by_itself_a_server_queues_eight_batches_and_what_600_steps_read() -> None:
    resolved = settle_queue(
        _resolved(max_num_seqs=16, max_num_batched_tokens=100, max_model_len=1000), QueueOptions()
    )
    assert resolved.config.queue == QueueConfig(max_num_queued_reqs=128, max_num_queued_tokens=60_000)


def test_four_of_the_longest_prompts_may_always_wait() -> None:
    resolved = settle_queue(_resolved(max_num_batched_tokens=64, max_model_len=100_000), QueueOptions())
    assert resolved.config.queue.max_num_queued_tokens == 400_000


def test_where_steps_are_limited_by_time_it_is_what_a_minute_of_them_reads() -> None:
    """Whatever limit is stated for the gaps between tokens: that is another matter than how long newcomers wait."""
    cost = StepCost(target_s=0.1, fixed_s=0.02, token_s=0.001, pair_s=0.0)
    for latency in (None, LatencyTarget(itl_s=0.01), LatencyTarget(itl_s=0.5, ttft_s=2.0)):
        before = _resolved(max_num_batched_tokens=2048, max_model_len=1000, step_cost=cost, latency=latency)
        assert settle_queue(before, QueueOptions()).config.queue.max_num_queued_tokens == 600 * 80


def test_what_is_stated_is_kept_and_said() -> None:
    resolved = settle_queue(_resolved(), QueueOptions(max_num_queued_reqs=3, max_num_queued_tokens=50))
    assert resolved.config.queue == QueueConfig(3, 50)
    assert [(choice.name, choice.value, choice.reason) for choice in resolved.choices[-2:]] == [
        ("max_num_queued_reqs", 3, "asked for"),
        ("max_num_queued_tokens", 50, "asked for"),
    ]


def test_an_engine_of_ones_own_bounds_nothing() -> None:
    assert resolve_all().config.queue == QueueConfig(None, None)
