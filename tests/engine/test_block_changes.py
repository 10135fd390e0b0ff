"""Whoever folds the records' changes over an empty pool knows what every block is, at any time."""

from __future__ import annotations

from random import Random

import pytest

from noria.core.kv import CACHED, FREE, USED
from support_engine import Harness, engine_config


class Follower:
    """Knows of blocks only what records say."""

    def __init__(self, harness: Harness) -> None:
        self.states = [FREE] * harness.scheduler.kv.pool.num_blocks
        harness.loop.recorder.add_listener(self)

    def on_step(self, record) -> None:
        for block, state in record.changed_blocks:
            self.states[block] = state

    on_request = on_step


def true_states(harness: Harness) -> list[int]:
    kv = harness.scheduler.kv
    return [
        USED if kv.pool.references(block) else CACHED if kv.prefix.holds(block) else FREE
        for block in range(kv.pool.num_blocks)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_folded_changes_are_the_pool_through_arrivals_preemptions_and_cancellations(seed: int) -> None:
    random = Random(seed)
    harness = Harness(engine_config(num_blocks=16, block_size=4, max_num_batched_tokens=16))
    follower = Follower(harness)
    for i in range(60):
        harness.add(
            f"r{i}", [random.randrange(2)] * random.randrange(1, 20), max_tokens=random.randrange(1, 20)
        )
        for _ in range(random.randrange(6)):
            if harness.loop.has_work:
                harness.step()
            assert follower.states == true_states(harness)
        if random.random() < 0.5:
            harness.loop.cancel([f"r{random.randrange(i + 1)}"])
            assert follower.states == true_states(harness)
    harness.run()
    assert follower.states == true_states(harness)
    assert sum(step.num_preemptions for step in harness.loop.recorder.steps()) > 0
    assert USED not in follower.states
    assert CACHED in follower.states


def test_arrivals_and_preemptions_are_told_by_name() -> None:
    harness = Harness(engine_config(num_blocks=16, block_size=4, max_num_batched_tokens=16))
    for i in range(8):
        harness.add(f"r{i}", [i] * 10, max_tokens=12)
    harness.run()
    steps, requests = harness.loop.recorder.steps(), harness.loop.recorder.requests()
    assert [name for step in steps for name in step.arrived_ids] == [f"r{i}" for i in range(8)]
    preempted = [name for step in steps for name in step.preempted_ids]
    assert len(preempted) == sum(step.num_preemptions for step in steps) > 0
    assert {r.request_id: preempted.count(r.request_id) for r in requests} == {
        r.request_id: r.num_preemptions for r in requests
    }
