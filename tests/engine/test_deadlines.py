from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noria.core.outputs import FinishReason
from noria.engine.deadlines import Deadlines
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams
from support_engine import Harness, engine_config, solo_output


def _add(
    harness: Harness, name: str, timeout_s: float | None, num_prompt: int = 3, max_tokens: int = 50
) -> None:
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=max_tokens)
    request = GenerateRequest(name, (1,) * num_prompt, params, 0, timeout_s=timeout_s)
    harness.loop.add(request, harness.clock.now())


def test_a_request_whose_time_is_over_while_it_waits_ends_without_any_work() -> None:
    harness = Harness(engine_config(max_num_seqs=1))
    _add(harness, "long", None)
    harness.step()
    _add(harness, "late", timeout_s=3.0)
    harness.step(6)  # a second each
    assert harness.last("late").finish is FinishReason.TIMEOUT
    assert harness.output("late") == []
    assert all(work.request_id != "late" for plan in harness.runner.plans for work in plan.work)
    assert not harness.last("long").finish


def test_a_request_whose_time_is_over_while_it_decodes_keeps_what_it_has_said_and_frees_its_blocks() -> None:
    harness = Harness(engine_config())
    _add(harness, "cut", timeout_s=5.0)
    harness.run()
    assert harness.last("cut").finish is FinishReason.TIMEOUT
    assert harness.output("cut") == solo_output([1, 1, 1], 5)
    assert harness.scheduler.kv.num_blocks_used == 0
    assert harness.loop.recorder.requests()[-1].finish is FinishReason.TIMEOUT


def test_a_request_whose_time_is_over_between_the_pieces_of_its_prompt_ends_there() -> None:
    harness = Harness(engine_config(max_num_batched_tokens=4, max_num_seqs=4))
    _add(harness, "long", timeout_s=3.0, num_prompt=40)
    harness.run()
    assert harness.last("long").finish is FinishReason.TIMEOUT
    assert sum(work.num_new for plan in harness.runner.plans for work in plan.work) == 12
    assert harness.scheduler.kv.num_blocks_used == 0


def test_a_request_that_ends_in_time_is_not_touched_by_its_deadline() -> None:
    harness = Harness(engine_config())
    _add(harness, "short", timeout_s=60.0, max_tokens=3)
    _add(harness, "other", None, max_tokens=100)
    harness.run()
    assert harness.last("short").finish is FinishReason.LENGTH
    assert harness.last("other").finish is FinishReason.LENGTH


def test_a_request_that_has_not_begun_when_it_must_have_ends_and_one_that_has_goes_on() -> None:
    harness = Harness(engine_config(max_num_seqs=1))
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=10)
    for name in ("first", "second"):
        harness.loop.add(GenerateRequest(name, (1, 2), params, 0, timeout_s=60.0), 0.0, begin_by_s=3.0)
    harness.step(5)
    assert harness.last("second").finish is FinishReason.TIMEOUT
    assert harness.output("second") == []
    harness.run()
    assert harness.last("first").finish is FinishReason.LENGTH


def test_a_deadline_counts_from_submission_not_from_when_the_engine_looks() -> None:
    harness = Harness(engine_config())
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=9)
    harness.clock.advance(10.0)
    harness.loop.add(GenerateRequest("r", (1, 2), params, 0, timeout_s=4.0), 6.0)
    harness.step()
    assert harness.last("r").finish is FinishReason.TIMEOUT
    assert harness.output("r") == []


@given(st.lists(st.tuples(st.sampled_from(["add", "forget", "take"]), st.integers(0, 30))))
def test_what_is_due_is_taken_once_and_what_has_ended_never(actions: list[tuple[str, int]]) -> None:
    deadlines, open_ones, now_s = Deadlines(), {}, 0.0
    for number, (action, value) in enumerate(actions):
        if action == "add":
            deadlines.add(f"r{number}", now_s + value)
            open_ones[f"r{number}"] = now_s + value
        elif action == "forget" and open_ones:
            name = sorted(open_ones)[value % len(open_ones)]
            deadlines.forget(name)
            del open_ones[name]
        else:
            now_s += value
            due = {name for name, deadline_s in open_ones.items() if deadline_s <= now_s}
            assert sorted(deadlines.take_due(now_s)) == sorted(due)
            for name in due:
                del open_ones[name]
        assert len(deadlines) == len(open_ones)


def test_memory_follows_the_open_requests() -> None:
    deadlines = Deadlines()
    for i in range(10_000):
        deadlines.add(f"r{i}", 1e9)
        deadlines.forget(f"r{i}")
    assert len(deadlines._heap) < 100
