from __future__ import annotations

import pytest

from noria.config.engine import AdmissionPolicy, SchedulingPolicy
from noria.core.outputs import FinishReason
from support_engine import Harness, engine_config, solo_output

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


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
    assert chunks == [100] * 4


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


@pytest.mark.parametrize("num_prompt", [4, 40])
def test_static_and_continuous_batching_need_the_same_steps_for_one_batch_of_equals(num_prompt: int) -> None:
    steps = {}
    for policy in AdmissionPolicy:
        harness = Harness(
            engine_config(
                num_blocks=2048, block_size=4, max_num_seqs=100, admission_policy=policy, prefix=False
            )
        )
        for i in range(100):
            harness.add(f"r{i}", [i % 40] * num_prompt, max_tokens=120)
        steps[policy] = harness.run()
    assert steps[AdmissionPolicy.STATIC] <= steps[AdmissionPolicy.CONTINUOUS] * 1.2
