from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import AdmissionPolicy
from noria.core.outputs import FinishReason
from noria.core.prefix import HashChain, Namespace
from noria.core.request import Request
from noria.sampling.params import SamplingParams
from support_engine import Harness, engine_config, solo_output

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_repeated_prompt_computes_only_what_the_cache_lacks() -> None:
    harness = Harness(engine_config(block_size=4))
    harness.add("first", PROMPT, max_tokens=1)
    harness.run()
    harness.add("second", PROMPT, max_tokens=1)
    harness.run()
    assert [work.num_new for work in harness.runner.plans[-2].work] == [1]  # 9 tokens, two full blocks cached
    assert harness.last("second").num_cached_tokens == 8
    assert harness.output("second") == harness.output("first")


def test_a_prompt_that_is_cached_to_the_last_token_computes_one_token_in_a_private_copy() -> None:
    harness = Harness(engine_config(block_size=4))
    harness.add("first", PROMPT[:8], max_tokens=1)
    harness.run()
    harness.add("second", PROMPT[:8], max_tokens=3)
    harness.run()
    plan = next(
        plan for plan in harness.runner.plans if plan.arrivals and plan.arrivals[0].request_id == "second"
    )
    assert [work.num_new for work in plan.work] == [1]
    assert len(plan.moves) == 1
    assert harness.output("second") == solo_output(PROMPT[:8], 3)


def test_a_copy_needs_no_spare_block_when_the_pool_is_full() -> None:
    harness = Harness(engine_config(num_blocks=2, block_size=4))
    harness.add("first", PROMPT[:8], max_tokens=0)
    harness.run()
    harness.add("second", PROMPT[:8], max_tokens=0)
    harness.run()
    assert harness.last("second").finish is FinishReason.LENGTH
    assert harness.last("second").num_cached_tokens == 7


@pytest.mark.parametrize("budget", [64, 8])
def test_requests_that_arrive_together_with_one_prompt_compute_it_once(budget: int) -> None:
    harness = Harness(engine_config(max_num_batched_tokens=budget))
    prompt = list(range(30))
    for i in range(4):
        harness.add(f"r{i}", prompt, max_tokens=3)
    harness.run()
    computed = sum(work.num_new for plan in harness.runner.plans for work in plan.work)
    assert computed == 30 + 3 * 2 + 4 * 2  # the prompt, its last block for three others, and two decodes each
    for i in range(4):
        assert harness.output(f"r{i}") == solo_output(prompt, 3)


def test_a_request_stops_waiting_for_a_prefix_whose_maker_was_cancelled() -> None:
    harness = Harness(engine_config(max_num_batched_tokens=8))
    for name in ("maker", "other"):
        harness.add(name, list(range(40)), max_tokens=1)
    harness.step(2)
    assert harness.scheduler.waiting.get("other") is not None
    harness.loop.cancel(["maker"])
    harness.step()
    assert harness.scheduler.running.get("other") is not None
    harness.run()
    assert harness.output("other") == solo_output(list(range(40)), 1)


def test_a_static_batch_does_not_wait_for_prefixes() -> None:
    harness = Harness(engine_config(admission_policy=AdmissionPolicy.STATIC))
    for i in range(3):
        harness.add(f"r{i}", PROMPT, max_tokens=4)
    assert harness.run() == 4


def test_salts_do_not_share_prefixes() -> None:
    harness = Harness(engine_config())
    harness.add("first", PROMPT, max_tokens=1, salt="one")
    harness.run()
    harness.add("second", PROMPT, max_tokens=1, salt="two")
    harness.run()
    assert harness.last("second").num_cached_tokens == 0


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=2, max_size=8))
def test_a_hash_of_four_bits_costs_hits_and_never_a_right_answer(prompts: list[list[int]]) -> None:
    def weak(parent: bytes, content: bytes) -> bytes:
        return bytes([sum(parent + content) % 16])

    harness = Harness(engine_config(num_blocks=24, block_size=2))
    for i, prompt in enumerate(prompts):
        chain = HashChain(Namespace("test"), 2, weak)
        params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
        harness.scheduler.add(Request(f"r{i}", prompt, params, 0, chain), 0.0)
        harness.run()
    for i, prompt in enumerate(prompts):
        assert harness.output(f"r{i}") == solo_output(prompt, 4)


def test_prompt_logprobs_are_never_skipped_by_the_cache() -> None:
    harness = Harness(engine_config())
    harness.add("first", PROMPT, max_tokens=1)
    harness.run()
    harness.add("scored", PROMPT, max_tokens=1, prompt_logprobs=1)
    harness.run()
    assert harness.last("scored").num_cached_tokens == 0


def test_blocks_cached_behind_one_that_was_evicted_do_not_keep_a_prefix_uncacheable() -> None:
    harness = Harness(engine_config(num_blocks=16, block_size=4))
    harness.add("first", PROMPT, max_tokens=1)
    # Computes the same prompt beside it, since it wants its log-probabilities, and goes on behind shared blocks.
    harness.add("scored", PROMPT, max_tokens=20, prompt_logprobs=0)
    harness.run()
    harness.add("flood", [9] * 40, max_tokens=1)
    harness.add("scored too", PROMPT, max_tokens=20, prompt_logprobs=0)
    harness.run()
    cached = []
    for i in range(3):
        harness.add(f"r{i}", PROMPT, max_tokens=8)
        harness.run()
        cached.append(harness.last(f"r{i}").num_cached_tokens)
        assert harness.output(f"r{i}") == solo_output(PROMPT, 8)
    assert cached[1:] == [8, 8]


def test_a_request_does_not_wait_for_a_prefix_whose_maker_makes_no_progress() -> None:
    harness = Harness(engine_config(num_blocks=200, block_size=4, max_num_batched_tokens=8))
    harness.add("oldest", [1] * 200, max_tokens=1)
    harness.step()
    harness.add("starved", [2] * 100, max_tokens=1)
    harness.step()
    harness.add("short", [2] * 5, max_tokens=1)
    harness.step(4)
    assert harness.output("short") == solo_output([2] * 5, 1)


def test_only_prompts_that_could_be_shared_count_as_looked_up() -> None:
    def queries(**config: object) -> int:
        harness = Harness(engine_config(**config))
        harness.add("a", PROMPT, max_tokens=1)
        harness.add("scored", PROMPT, max_tokens=1, prompt_logprobs=0)
        harness.run()
        return sum(step.prefix_queries for step in harness.loop.recorder.steps())

    assert queries() == len(PROMPT)
    assert queries(prefix=False) == 0
