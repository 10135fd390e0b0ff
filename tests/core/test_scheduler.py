from __future__ import annotations

import pytest

from noria.config.errors import RequestError
from noria.core.outputs import FinishReason
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


def test_a_request_that_sits_steps_out_goes_on_where_it_was_and_keeps_nobody_waiting() -> None:
    harness = Harness(engine_config())
    harness.add("other", [5, 6], max_tokens=6)
    harness.add("late", PROMPT, max_tokens=4)
    for _ in range(2):  # with its prompt, and again with its last token
        harness.runner.unready.add("late")
        harness.step()
        harness.scheduler.check()
    assert harness.output("late") == []
    assert harness.output("other") == solo_output([5, 6], 2)
    shares = [
        (work.num_computed, work.num_new)
        for plan in harness.runner.plans
        for work in plan.work
        if work.request_id == "late"
    ]
    assert shares == [(0, 9), (8, 1)]
    assert [step.unready_ids for step in harness.loop.recorder.steps()] == [("late",), ("late",)]
    assert harness.run() == 4
    assert harness.output("late") == solo_output(PROMPT, 4)
    assert harness.output("other") == solo_output([5, 6], 6)


def test_nobody_waits_for_the_blocks_of_a_request_that_sits_steps_out() -> None:
    whole_blocks = list(range(2, 10))  # its last token is computed again and again
    harness = Harness(engine_config())
    harness.add("late", whole_blocks, max_tokens=4)
    harness.runner.unready.add("late")
    harness.step()
    harness.add("twin", whole_blocks, max_tokens=4)
    harness.runner.unready.add("late")
    harness.step()
    assert "twin" in harness.runner.known_requests
    harness.run()
    assert harness.output("twin") == harness.output("late") == solo_output(whole_blocks, 4)


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
