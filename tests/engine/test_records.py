from __future__ import annotations

import json

import pytest

from noria.core.outputs import FinishReason
from noria.engine.messages import expand_choices
from noria.engine.records import Recorder
from noria.engine.trace import assign_lanes, chrome_trace
from noria.sampling.params import SamplingParams
from support_engine import Harness, engine_config


@pytest.fixture
def busy() -> Harness:
    """Eight requests on a pool that is too small for them; each step takes one second."""
    harness = Harness(engine_config(num_blocks=16, block_size=4, max_num_batched_tokens=16))
    for i in range(8):
        harness.add(f"r{i}", [i % 2] * 10, max_tokens=12)
    harness.run()
    return harness


def test_token_counts_add_up_over_steps_and_requests(busy: Harness) -> None:
    steps, requests = busy.loop.recorder.steps(), busy.loop.recorder.requests()
    assert sum(step.num_sampled_tokens for step in steps) == 8 * 12
    computed = sum(work.num_new for step in steps for work in step.work)
    fresh = sum(step.num_prompt_tokens for step in steps)
    recomputed = sum(step.num_recomputed_tokens for step in steps)
    decoded = sum(r.num_output_tokens - 1 for r in requests)  # a last token is never computed
    assert computed <= fresh + recomputed + decoded
    assert sum(r.num_preemptions for r in requests) == sum(step.num_preemptions for step in steps) > 0
    assert len(requests) == 8
    assert all(r.finish is FinishReason.LENGTH for r in requests)


def test_every_request_has_one_first_token_and_a_gap_for_each_further_one(busy: Harness) -> None:
    steps = busy.loop.recorder.steps()
    assert sum(len(step.ttfts_s) for step in steps) == 8
    assert sum(len(step.token_gaps_s) for step in steps) == 8 * 11
    request = next(r for r in busy.loop.recorder.requests() if r.request_id == "r0")
    assert request.accepted_s <= request.first_scheduled_s <= request.first_token_s <= request.last_token_s
    ttft = request.first_token_s - request.accepted_s
    assert any(ttft in step.ttfts_s for step in steps)


def test_a_step_record_prices_its_chunks_and_decodes() -> None:
    harness = Harness(engine_config(max_num_batched_tokens=8))
    harness.add("a", [1] * 12, max_tokens=3)
    harness.run()
    first, second, third, fourth = harness.loop.recorder.steps()
    assert (first.num_prefill_tokens, first.prefill_context_sum) == (8, 8 * 4.0)
    assert (second.num_prefill_tokens, second.prefill_context_sum) == (4, 4 * (8 + 2.0))
    assert (third.num_decode_seqs, third.num_decode_kv_tokens, third.num_prefill_tokens) == (1, 13, 0)
    assert fourth.num_decode_kv_tokens == 14


def test_records_are_kept_in_bounded_memory_and_every_one_reaches_a_listener(busy: Harness) -> None:
    class Listener:
        def __init__(self) -> None:
            self.steps: list = []
            self.requests: list = []

        def on_step(self, record) -> None:
            self.steps.append(record)

        def on_request(self, record) -> None:
            self.requests.append(record)

    recorder, listener = Recorder(max_steps=3, max_requests=2), Listener()
    recorder.add_listener(listener)
    for step in busy.loop.recorder.steps():
        recorder.record_step(step)
    for request in busy.loop.recorder.requests():
        recorder.record_request(request)
    assert recorder.steps() == busy.loop.recorder.steps()[-3:]
    assert recorder.requests() == busy.loop.recorder.requests()[-2:]
    assert listener.steps == busy.loop.recorder.steps()
    assert listener.requests == busy.loop.recorder.requests()


def test_a_trace_shows_every_step_chunk_and_request(busy: Harness) -> None:
    steps, requests = busy.loop.recorder.steps(), busy.loop.recorder.requests()
    trace = json.loads(json.dumps(chrome_trace(steps, requests)))
    events = trace["traceEvents"]
    assert sum(event["name"].startswith("step ") for event in events) == len(steps)
    assert sum(event["pid"] == 2 and event["ph"] == "X" for event in events) == sum(
        len(s.work) for s in steps
    )
    begins = [event for event in events if event["ph"] == "b"]
    assert {event["id"] for event in begins} == {f"r{i}" for i in range(8)}
    assert len(begins) == sum(event["ph"] == "e" for event in events)


def test_no_two_sequences_share_a_lane_in_one_step(busy: Harness) -> None:
    steps = busy.loop.recorder.steps()
    lanes = assign_lanes(steps)
    for step in steps:
        used = [lanes[work.request_id] for work in step.work]
        assert len(set(used)) == len(used)
    assert max(lanes.values()) < 8


def test_choices_get_their_own_ids_and_consecutive_seeds() -> None:
    class Fixed:
        def getrandbits(self, bits: int) -> int:
            return 2**64 - 1

    stated = expand_choices("id", [1, 2], SamplingParams(n=3, seed=5), Fixed())
    assert [(r.request_id, r.seed) for r in stated] == [("id-0", 5), ("id-1", 6), ("id-2", 7)]
    drawn = expand_choices("id", [1, 2], SamplingParams(n=2), Fixed())
    assert [r.seed for r in drawn] == [2**64 - 1, 0]
