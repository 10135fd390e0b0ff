"""Settings of a simulated engine are changed by the names of flags, or refused with what can be."""

from __future__ import annotations

import pytest

from noria.capacity.what_if import with_changes
from noria.config.engine import AdmissionPolicy, LatencyTarget, StepCost
from noria.config.errors import ConfigError
from support_engine import engine_config

COST = StepCost(0.1, 0.01, 0.001, 0.0)
CONFIG = engine_config(num_blocks=100, block_size=16, max_model_len=800, step_cost=COST)


def test_each_setting_goes_where_it_belongs() -> None:
    changed = with_changes(
        CONFIG,
        [
            "max_num_seqs=4",
            "--num-blocks=200",
            "enable_prefix_caching=off",
            "admission_policy=static",
            "max_num_queued_reqs=9",
        ],
    )
    assert (changed.scheduler.max_num_seqs, changed.cache.num_blocks) == (4, 200)
    assert not changed.cache.enable_prefix_caching
    assert changed.scheduler.admission_policy is AdmissionPolicy.STATIC
    assert changed.queue.max_num_queued_reqs == 9
    assert with_changes(CONFIG, []) == CONFIG


def test_a_stated_number_of_tokens_takes_the_place_of_what_was_timed() -> None:
    assert with_changes(CONFIG, ["max_num_batched_tokens=256"]).scheduler.step_cost is None
    paced = with_changes(CONFIG, ["itl_slo_ms=50", "ttft_slo_ms=900", "max_num_batched_tokens=256"])
    assert paced.scheduler.latency == LatencyTarget(0.05, 0.9)
    assert paced.scheduler.step_cost == COST


def test_another_block_size_leaves_the_memory_as_it_is() -> None:
    cache = with_changes(CONFIG, ["block_size=32"]).cache
    assert (cache.block_size, cache.num_blocks) == (32, 50)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("max_num_sqs=4", "'max_num_sqs' cannot be changed in a simulation; these can: max_num_seqs"),
        ("max_num_seqs=0", "'0' is no value for max_num_seqs"),
        ("max_num_seqs", "'' is no value for max_num_seqs"),
        ("enable_prefix_caching=maybe", "'maybe' is no value"),
        ("admission_policy=best", "'best' is no value"),
        ("itl_slo_ms=-1", "'-1' is no value"),
        ("num_blocks=40", "40 blocks of 16 tokens hold 640 tokens.* max_model_len = 800"),
        ("max_num_seqs=100", "max_num_batched_tokens = 64 is less than max_num_seqs = 100"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        with_changes(CONFIG, [change])


def test_a_latency_target_needs_steps_that_were_timed() -> None:
    with pytest.raises(ConfigError, match="calibrate without stating it"):
        with_changes(engine_config(), ["itl_slo_ms=50"])
