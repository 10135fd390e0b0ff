"""What is taken down of a run never costs a request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from noria.capacity.run_file import read_run
from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams
from support_capacity import Waiter, logged_client
from support_engine import engine_config
from support_held import held


def request(name: str, num_tokens: int = 30) -> GenerateRequest:
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    return GenerateRequest(name, (1, 2, 3), params, 0)


def test_a_disk_that_is_full_ends_the_log_and_no_request(caplog: pytest.LogCaptureFixture) -> None:
    client = logged_client(engine_config(), Path("/dev/full"))
    finishes: list[FinishReason | None] = []
    waiter = Waiter(20)

    def sink(deltas: Sequence[Delta]) -> None:
        finishes.extend(delta.finish for delta in deltas if delta.finish is not None)
        waiter(deltas)

    with caplog.at_level(logging.ERROR):
        client.submit([request(f"r{i}", 200) for i in range(20)], sink).result()
        waiter.wait()
        client.shutdown()
    assert finishes == [FinishReason.LENGTH] * 20
    assert [record.message for record in caplog.records] == [
        "the run log ends here: [Errno 28] No space left on device"
    ]


def test_a_listener_that_raises_loses_its_own_requests_alone(tmp_path: Path) -> None:
    client = logged_client(engine_config(), tmp_path / "run.jsonl")
    waiter = Waiter(2)
    entered = threading.Event()

    def bad(deltas: Sequence[Delta]) -> None:
        entered.set()
        raise ValueError("as a bug would")

    client.submit([request("good-0", 200)], waiter).result()
    client.submit([request("bad", 200)], bad).result()
    client.submit([request("good-1", 200)], waiter).result()
    waiter.wait()
    assert entered.is_set()
    client.shutdown()
    ended = read_run(tmp_path / "run.jsonl").ended
    assert {name: one.record.finish for name, one in ended.items() if name != "bad"} == {
        "good-0": FinishReason.LENGTH,
        "good-1": FinishReason.LENGTH,
    }


def test_news_of_one_listener_comes_in_one_call_a_step(tmp_path: Path) -> None:
    client = logged_client(engine_config(), tmp_path / "run.jsonl")
    waiter, calls = Waiter(2), []

    def sink(deltas: Sequence[Delta]) -> None:
        calls.append({delta.request_id for delta in deltas})
        waiter(deltas)

    with held(client, (1, lambda asked: asked.num_submitted >= 2)):  # both run at once
        for name in ("a", "b"):
            client.submit([request(name, 100)], sink).result()
        waiter.wait()
    client.shutdown()
    assert {"a", "b"} in calls
