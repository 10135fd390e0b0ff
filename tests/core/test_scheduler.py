from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import AdmissionPolicy, SchedulingPolicy
from noria.config.errors import RequestError
from noria.core.outputs import FinishReason
from noria.core.prefix import HashChain, Namespace
from noria.core.request import Request
from noria.sampling.params import SamplingParams
from support_engine import EOS, Harness, engine_config, history_token, make_scheduler, solo_output

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_request_gives_its_tokens_and_leaves_nothing_behind() -> None:
    harness = Harness(engine_config())
    harness.add("a", PROMPT, max_tokens=5)
    assert harness.run() == 5
    assert harness.output("a") == solo_output(PROMPT, 5)
    assert harness.last("a").finish is FinishReason.LENGTH
    assert harness.scheduler.kv.num_blocks_used == 0
    assert harness.runner.known_requests == set()


def test_prompts_and_outputs_share_one_token_budget() -> None:
    harness = Harness(engine_config(max_num_batched_tokens=8))
    harness.add("decoding", [1], max_tokens=20)
    harness.step()
    harness.add("long", list(range(30)), max_tokens=1)
    harness.step(5)
    sizes = [{work.request_id: work.num_new for work in plan.work} for plan in harness.runner.plans[1:6]]
    assert sizes == [{"decoding": 1, "long": 7}] * 4 + [{"decoding": 1, "long": 2}]


def test_a_prompt_is_one_step_when_the_budget_holds_it() -> None:
    harness = Harness(engine_config(max_num_batched_tokens=64))
    harness.add("a", list(range(40)), max_tokens=1)
    assert harness.run() == 1


def test_a_short_prompt_is_not_held_up_by_a_long_one() -> None:
    harness = Harness(engine_config(num_blocks=2000, max_num_batched_tokens=256, max_model_len=8000))
    harness.add("long", [i % 40 for i in range(6000)], max_tokens=1)
    harness.step(3)
    harness.add("short", list(range(20)), max_tokens=1)
    harness.step()
    assert harness.output("short") == solo_output(list(range(20)), 1)


def test_a_long_prompt_beside_a_flood_of_short_ones_takes_at_most_twice_as_long_as_alone() -> None:
    alone = Harness(engine_config(num_blocks=2000, max_num_batched_tokens=64, max_model_len=8000))
    alone.add("long", [i % 40 for i in range(2000)], max_tokens=1)
    steps_alone = alone.run()
    harness = Harness(engine_config(num_blocks=2000, max_num_batched_tokens=64, max_model_len=8000))
    harness.add("long", [i % 40 for i in range(2000)], max_tokens=1)
    steps = 0
    while not harness.output("long"):
        harness.add(f"short{2 * steps}", [steps % 40] * 30, max_tokens=1)
        harness.add(f"short{2 * steps + 1}", [steps % 40] * 31, max_tokens=1)
        harness.step()
        steps += 1
    assert steps <= 2 * steps_alone + 1


def test_a_request_too_big_for_the_free_blocks_is_passed_by_smaller_ones_but_not_for_ever() -> None:
    harness = Harness(engine_config(num_blocks=10, block_size=4, prefix=False, max_num_seqs=4))
    harness.add("running", [1] * 20, max_tokens=20)
    harness.step()
    harness.add("big", [2] * 24, max_tokens=1)
    steps = 0
    while harness.scheduler.waiting.get("big"):
        harness.add(f"small{steps}", [3], max_tokens=1)
        harness.step()
        steps += 1
        assert steps < 60
    assert harness.output("small0") == solo_output([3], 1)
    harness.run()
    assert harness.output("big") == solo_output([2] * 24, 1)


def test_the_oldest_request_is_never_preempted_and_all_end_with_their_solo_output() -> None:
    harness = Harness(engine_config(num_blocks=40, block_size=16, max_num_batched_tokens=256))
    prompts = {f"r{i}": [i] * 100 for i in range(8)}
    for name, prompt in prompts.items():
        harness.add(name, prompt, max_tokens=300)
    harness.run()
    requests = {record.request_id: record for record in harness.loop.recorder.requests()}
    assert requests["r0"].num_preemptions == 0
    assert sum(record.num_preemptions for record in requests.values()) > 0
    assert max(record.num_preemptions for record in requests.values()) <= 4
    for name, prompt in prompts.items():
        assert harness.output(name) == solo_output(prompt, 300)


def test_something_is_sampled_in_every_step_however_often_requests_are_preempted() -> None:
    harness = Harness(engine_config(num_blocks=12, block_size=4, max_num_batched_tokens=64, prefix=False))
    for i in range(6):
        harness.add(f"r{i}", [i] * 8, max_tokens=30)
    harness.run()
    assert sum(record.num_preemptions for record in harness.loop.recorder.requests()) > 0
    assert all(record.num_sampled_tokens > 0 for record in harness.loop.recorder.steps())


def test_a_preempted_request_takes_its_own_cached_blocks_back() -> None:
    harness = Harness(engine_config(num_blocks=12, block_size=4, max_num_batched_tokens=64))
    harness.add("old", [1] * 16, max_tokens=24)
    harness.add("young", [2] * 16, max_tokens=12)
    harness.run()
    works = [work for plan in harness.runner.plans for work in plan.work if work.request_id == "young"]
    resumed = next(i for i, work in enumerate(works) if i and work.num_computed < works[i - 1].num_computed)
    computed_before = works[resumed - 1].num_computed + 1
    steps = harness.loop.recorder.steps()
    assert 0 < works[resumed].num_computed < computed_before
    assert sum(step.num_recomputed_tokens for step in steps) == computed_before - works[resumed].num_computed
    assert harness.output("young") == solo_output([2] * 16, 12)


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
    assert harness.last("second").num_cached_tokens == 0  # nothing is reported before the first token


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
        harness.scheduler.add(Request(f"r{i}", prompt, params, 0, 0, chain), 0.0)
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


@pytest.mark.parametrize("state", ["waiting", "prefilling", "decoding", "preempted"])
def test_cancelling_frees_a_requests_blocks_at_once_in_every_state(state: str) -> None:
    harness = Harness(engine_config(num_blocks=12, block_size=4, max_num_batched_tokens=8, max_num_seqs=2))
    harness.add("other", [1] * 8, max_tokens=24)
    if state == "preempted":
        harness.add("victim", [2] * 8, max_tokens=24)
        while not harness.loop.recorder.steps() or not harness.loop.recorder.steps()[-1].num_preemptions:
            harness.step()
    else:
        if state == "waiting":
            harness.add("full", [3] * 2, max_tokens=24)
        harness.add("victim", [2] * 16, max_tokens=8)
        harness.step({"waiting": 2, "prefilling": 2, "decoding": 5}[state])
    assert (harness.scheduler.running.get("victim") is not None) == (state in ("prefilling", "decoding"))
    harness.loop.cancel(["victim"])
    harness.scheduler.check()
    assert "victim" not in harness.scheduler.kv.holders()
    harness.step()
    assert harness.last("victim").finish is FinishReason.ABORT
    assert "victim" not in harness.runner.known_requests
    harness.run()
    assert harness.output("other") == solo_output([1] * 8, 24)


def test_cancelling_twice_or_after_the_end_says_nothing_more() -> None:
    harness = Harness(engine_config())
    harness.add("a", PROMPT, max_tokens=1)
    harness.loop.cancel(["a", "a", "nobody"])
    harness.run()
    assert [delta.finish for delta in harness.deltas] == [FinishReason.ABORT]


def test_a_failing_request_hurts_only_itself() -> None:
    harness = Harness(engine_config())
    harness.runner.failing.add("bad")
    harness.add("good", PROMPT, max_tokens=4)
    harness.add("bad", [5, 6], max_tokens=4)
    harness.run()
    assert harness.last("bad").finish is FinishReason.ERROR
    assert harness.last("bad").error == "made to fail"
    assert harness.output("good") == solo_output(PROMPT, 4)


def scripted(*tokens: int):
    return lambda request_id, known: tokens[(len(known) - len(PROMPT)) % len(tokens)]


def test_an_end_of_sequence_token_ends_the_output() -> None:
    harness = Harness(engine_config(), scripted(7, EOS, 8))
    harness.add("a", PROMPT, max_tokens=9, ignore_eos=False)
    harness.run()
    assert harness.output("a") == [7, EOS]
    assert (harness.last("a").finish, harness.last("a").stop_token_id) == (FinishReason.STOP, EOS)


def test_ignore_eos_ignores_end_of_sequence_but_not_stop_tokens() -> None:
    harness = Harness(engine_config(), scripted(7, EOS, 8))
    harness.add("a", PROMPT, max_tokens=9, ignore_eos=True, stop_token_ids=(8,))
    harness.run()
    assert harness.output("a") == [7, EOS, 8]
    assert harness.last("a").stop_token_id == 8


def test_no_stop_token_ends_the_output_before_min_tokens() -> None:
    harness = Harness(engine_config(), scripted(EOS, EOS, EOS, EOS))
    harness.add("a", PROMPT, max_tokens=9, min_tokens=2, ignore_eos=False)
    harness.run()
    assert harness.output("a") == [EOS, EOS, EOS]


def test_max_tokens_zero_computes_the_prompt_and_samples_nothing() -> None:
    harness = Harness(engine_config())
    harness.add("a", PROMPT, max_tokens=0)
    harness.run()
    assert harness.output("a") == []
    assert harness.last("a").finish is FinishReason.LENGTH


def test_an_output_ends_at_the_context_end() -> None:
    harness = Harness(engine_config(max_model_len=12))
    harness.add("a", PROMPT, max_tokens=None)
    harness.run()
    assert harness.output("a") == solo_output(PROMPT, 3)
    assert harness.last("a").finish is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("prompt", "message"), [([], "empty"), (list(range(12)), "maximum context length is 12")]
)
def test_a_prompt_that_can_never_be_served_is_refused_and_leaves_no_trace(
    prompt: list[int], message: str
) -> None:
    harness = Harness(engine_config(max_model_len=12))
    with pytest.raises(RequestError, match=message):
        harness.add("a", prompt, max_tokens=5)
    assert not harness.loop.has_work


def test_static_batching_admits_nobody_until_the_batch_has_ended() -> None:
    harness = Harness(engine_config(admission_policy=AdmissionPolicy.STATIC, max_num_seqs=2))
    for name, length in (("a", 2), ("b", 6), ("c", 2)):
        harness.add(name, PROMPT, max_tokens=length)
    harness.step(6)
    assert harness.last("b").finish is FinishReason.LENGTH
    assert harness.output("c") == []
    harness.run()
    assert harness.output("c") == solo_output(PROMPT, 2)


def test_a_static_batch_gathers_all_its_prompts_before_its_first_token() -> None:
    harness = Harness(engine_config(admission_policy=AdmissionPolicy.STATIC, max_num_batched_tokens=9))
    harness.add("a", PROMPT, max_tokens=4)
    harness.step()
    harness.add("late", PROMPT[:3], max_tokens=1)
    harness.run()
    firsts = [
        next(i for i, p in enumerate(harness.runner.plans) if any(w.request_id == n for w in p.work))
        for n in ("a", "late")
    ]
    assert firsts == [0, 4]


def test_without_chunked_prefill_a_prompt_is_computed_in_one_piece() -> None:
    harness = Harness(engine_config(enable_chunked_prefill=False, max_num_batched_tokens=256))
    for i in range(4):
        harness.add(f"r{i}", [i] * 100, max_tokens=2)
    harness.run()
    chunks = [work.num_new for plan in harness.runner.plans for work in plan.work if work.num_new > 1]
    assert chunks == [100, 100, 100, 100] or all(chunk >= 96 for chunk in chunks)


def test_priorities_order_the_queue() -> None:
    harness = Harness(engine_config(scheduling_policy=SchedulingPolicy.PRIORITY, max_num_seqs=1))
    for name, priority in (("low", 5), ("high", -1), ("mid", 0)):
        harness.add(name, PROMPT, priority=priority, max_tokens=1)
    harness.run()
    assert [delta.request_id for delta in harness.deltas] == ["high", "mid", "low"]


def test_a_low_priority_request_is_served_once_it_has_waited_long_enough() -> None:
    harness = Harness(
        engine_config(scheduling_policy=SchedulingPolicy.PRIORITY, max_num_seqs=1, priority_aging_s=5.0)
    )
    harness.add("low", PROMPT, priority=1, max_tokens=1)
    steps = 0
    while not harness.output("low"):
        harness.add(f"high{steps}", PROMPT, priority=0, max_tokens=1)
        harness.step()
        steps += 1
        assert steps < 10
    assert steps > 3


def test_continuous_batching_needs_far_fewer_steps_than_static_batching_for_the_same_work() -> None:
    lengths = [200 if i % 8 == 0 else 5 for i in range(64)]
    steps = {}
    for policy in AdmissionPolicy:
        harness = Harness(
            engine_config(num_blocks=512, block_size=8, max_num_seqs=8, admission_policy=policy)
        )
        for i, length in enumerate(lengths):
            harness.add(f"r{i}", [i % 40, 2, 3], max_tokens=length)
        steps[policy] = harness.run()
        for i, length in enumerate(lengths):
            assert harness.output(f"r{i}") == solo_output([i % 40, 2, 3], length)
    assert steps[AdmissionPolicy.STATIC] == 8 * 200  # every batch lasts as long as its longest member
    assert steps[AdmissionPolicy.CONTINUOUS] < steps[AdmissionPolicy.STATIC] / 4


def test_planning_twice_over_gives_the_same_steps() -> None:
    def plans() -> list:
        harness = Harness(engine_config(num_blocks=14, max_num_batched_tokens=16))
        for i in range(6):
            harness.add(f"r{i}", [i % 3] * (5 + i), max_tokens=10)
        harness.run()
        return harness.runner.plans

    assert plans() == plans()


def test_a_scheduler_with_nothing_to_do_plans_an_empty_step() -> None:
    assert make_scheduler(engine_config()).plan(0.0).is_empty


def test_the_output_of_a_request_does_not_depend_on_its_neighbours() -> None:
    crowded = Harness(engine_config(num_blocks=20, max_num_batched_tokens=12))
    for i in range(10):
        crowded.add(f"r{i}", [i, i + 1, i + 2] * 3, max_tokens=8)
    crowded.run()
    for i in range(10):
        assert crowded.output(f"r{i}") == solo_output([i, i + 1, i + 2] * 3, 8, history_token)
