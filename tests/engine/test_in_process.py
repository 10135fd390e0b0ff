from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest

from noria.config.engine import QueueConfig
from noria.config.errors import EngineError, OverloadError, RequestError
from noria.core.clock import VirtualClock
from noria.core.outputs import Delta, FinishReason
from noria.engine.crowd import Crowd
from noria.engine.in_process import InProcessClient
from noria.engine.making import make_loop
from noria.engine.messages import EngineRequest, GenerateRequest
from noria.engine.records import Recorder
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured.api import NoConstraints
from support_engine import engine_config, loop_factory, solo_output
from support_gated_runner import GatedRunner
from support_ledger_runner import LedgerRunner

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


class Inbox:
    """A sink that remembers, and can be waited on."""

    def __init__(self) -> None:
        self.batches: list[list[Delta]] = []
        self._changed = threading.Condition()

    def __call__(self, deltas: Sequence[Delta]) -> None:
        with self._changed:
            self.batches.append(list(deltas))
            self._changed.notify_all()

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=20), self.batches

    def deltas(self, request_id: str) -> list[Delta]:
        return [delta for batch in self.batches for delta in batch if delta.request_id == request_id]

    def finish(self, request_id: str) -> FinishReason | None:
        return next((delta.finish for delta in self.deltas(request_id) if delta.finish), None)

    def output(self, request_id: str) -> list[int]:
        return [token for delta in self.deltas(request_id) for token in delta.token_ids]


def request(
    request_id: str, prompt: Sequence[int] = (1, 2, 3), params: SamplingParams = GREEDY
) -> GenerateRequest:
    return GenerateRequest(request_id, tuple(prompt), params, seed=0)


@pytest.fixture
def runner() -> LedgerRunner:
    return LedgerRunner(4)


@pytest.fixture
def client(runner: LedgerRunner):
    config = engine_config()
    client = InProcessClient(loop_factory(config, runner), config)
    yield client
    client.shutdown()


@pytest.fixture
def gated():
    config = engine_config()
    runner = GatedRunner()
    client = InProcessClient(loop_factory(config, runner), config)
    yield client, runner
    runner.gate.release(1000)
    client.shutdown()


def test_a_submitted_request_comes_back_through_its_sink(client: InProcessClient) -> None:
    inbox = Inbox()
    client.submit([request("a")], inbox)
    inbox.wait(lambda: inbox.finish("a"))
    assert inbox.output("a") == solo_output([1, 2, 3], 6)


def test_a_sink_is_called_once_a_step_for_all_its_requests(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("a"), request("b")], inbox)
    runner.gate.release(1000)
    inbox.wait(lambda: inbox.finish("a") and inbox.finish("b"))
    assert all({delta.request_id for delta in batch} == {"a", "b"} for batch in inbox.batches)
    assert len(inbox.batches) == 6


def test_a_cancelled_request_is_gone_before_the_next_step_is_planned(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("a"), request("b")], inbox)
    assert runner.started.acquire(timeout=20)  # the first step is computing
    client.cancel(["a"])
    runner.gate.release(1000)
    inbox.wait(lambda: inbox.finish("a") and inbox.finish("b"))
    assert inbox.finish("a") is FinishReason.ABORT
    assert [{work.request_id for work in plan.work} for plan in runner.plans[:2]] == [{"a", "b"}, {"b"}]
    assert runner.plans[1].departures == ("a",)


def test_a_dead_runner_gives_every_open_request_an_error_and_refuses_new_ones(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("a")], inbox)
    assert runner.started.acquire(timeout=20)
    client.submit([request("b")], inbox)  # still in the inbox when the engine dies
    runner.error = ValueError("secret path")
    runner.gate.release(1000)
    inbox.wait(lambda: inbox.finish("a") and inbox.finish("b"))
    assert {inbox.finish("a"), inbox.finish("b")} == {FinishReason.LOST}
    assert inbox.deltas("a")[-1].error == "the engine failed: ValueError"
    client._thread.join(timeout=20)
    assert client.stats().is_alive is False
    assert runner.is_shut_down
    with pytest.raises(EngineError, match="the engine failed: ValueError"):
        client.submit([request("c")], inbox).result()


def test_a_sink_that_raises_loses_its_requests_and_nobody_elses(client: InProcessClient, caplog) -> None:
    def broken(deltas: Sequence[Delta]) -> None:
        raise RuntimeError("listener")

    inbox = Inbox()
    client.submit(
        [request("bad", params=SamplingParams(temperature=0, max_tokens=200, ignore_eos=True))], broken
    )
    client.submit([request("good")], inbox)
    inbox.wait(lambda: inbox.finish("good"))
    assert inbox.output("good") == solo_output([1, 2, 3], 6)
    client.submit([request("later")], inbox)
    inbox.wait(lambda: inbox.finish("later"))
    client.submit([request("bad")], inbox)  # its id is free again
    inbox.wait(lambda: inbox.finish("bad"))


def test_shutting_down_aborts_what_is_open(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("a")], inbox)
    assert runner.started.acquire(timeout=20)
    stopper = threading.Thread(target=client.shutdown)
    stopper.start()
    runner.gate.release(1000)
    stopper.join(timeout=20)
    assert inbox.finish("a") is FinishReason.ABORT
    with pytest.raises(EngineError, match="shut down"):
        client.submit([request("b")], inbox).result()


def test_whatever_a_runner_raises_nobody_is_left_waiting(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("a")], inbox)
    runner.error = SystemExit(3)
    runner.gate.release(1000)
    inbox.wait(lambda: inbox.finish("a"))
    assert inbox.finish("a") is FinishReason.LOST
    with pytest.raises(EngineError, match="SystemExit"):
        client.submit([request("b")], inbox).result()


def test_a_request_is_refused_or_answered_however_it_races_with_shutting_down() -> None:
    for _ in range(50):
        config = engine_config()
        client, inbox = InProcessClient(loop_factory(config, LedgerRunner(4)), config), Inbox()
        accepted: list[str] = []

        def submit(client=client, inbox=inbox, accepted=accepted) -> None:
            try:
                for i in range(50):
                    client.submit([request(str(i))], inbox).result()
                    accepted.append(str(i))
            except EngineError:
                pass

        submitter = threading.Thread(target=submit)
        submitter.start()
        client.shutdown()
        submitter.join()
        assert [name for name in accepted if inbox.finish(name) is None] == []


def test_the_reason_of_a_cancellation_is_in_the_last_delta_and_in_the_record(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("a"), request("b")], inbox)
    assert runner.started.acquire(timeout=20)
    client.cancel(["a"], FinishReason.STOP)
    runner.gate.release(1000)
    inbox.wait(lambda: inbox.finish("a") and inbox.finish("b"))
    assert inbox.finish("a") is FinishReason.STOP
    assert {r.request_id: r.finish for r in client.recorder.requests()}["a"] is FinishReason.STOP


def test_whoever_hears_that_a_request_has_ended_finds_its_record(gated) -> None:
    client, runner = gated
    found: list[bool] = []

    def look(deltas: Sequence[Delta]) -> None:
        recorded = {record.request_id for record in client.recorder.requests()}
        found.extend(delta.request_id in recorded for delta in deltas if delta.finish)

    inbox = Inbox()
    client.submit([request("a"), request("b")], look)
    assert runner.started.acquire(timeout=20)
    client.cancel(["a"])
    client.submit([request("later")], inbox)
    runner.gate.release(1000)
    inbox.wait(lambda: inbox.finish("later"))
    assert found == [True, True]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request("x", prompt=[]), "empty"),
        (request("x", prompt=[50]), "prompt must hold token ids from 0 to 49, got 50"),
        (request("x", prompt=[-1, 3]), "got -1"),
        (request("x", prompt=[1] * 256), "maximum context length is 256"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_before_anything_is_queued(
    client: InProcessClient, bad: GenerateRequest, message: str
) -> None:
    inbox = Inbox()
    with pytest.raises(RequestError, match=message):
        client.submit([request("fine"), bad], inbox).result()
    client.submit([request("fine")], inbox)  # was not queued the first time
    inbox.wait(lambda: inbox.finish("fine"))


def test_an_id_in_use_is_refused(gated) -> None:
    client, _ = gated
    client.submit([request("a")], Inbox())
    with pytest.raises(RequestError, match="'a' is in use"):
        client.submit([request("b"), request("a")], Inbox()).result()
    with pytest.raises(RequestError, match="'c' is in use"):
        client.submit([request("c"), request("c")], Inbox()).result()
    client.submit([request("b")], Inbox())


def test_many_threads_submit_and_cancel_and_the_pool_is_whole_at_the_end(client: InProcessClient) -> None:
    inbox = Inbox()

    def work(thread: int) -> None:
        for i in range(25):
            name = f"{thread}.{i}"
            client.submit([request(name, prompt=[thread, i % 3, 1])], inbox)
            if i % 3 == 0:
                client.cancel([name])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [f"{t}.{i}" for t in range(4) for i in range(25)]
    inbox.wait(lambda: all(inbox.finish(name) for name in names))
    for t in range(4):
        for i in range(25):
            if inbox.finish(f"{t}.{i}") is FinishReason.LENGTH:
                assert inbox.output(f"{t}.{i}") == solo_output([t, i % 3, 1], 6)
    client.shutdown()
    client._loop.scheduler.check()
    assert client._loop.scheduler.kv.num_blocks_used == 0
    assert len(client.recorder.requests()) == 100


def test_what_a_request_would_meet_is_known_while_a_step_computes_and_until_the_engine_ends() -> None:
    told: list[Crowd] = []
    config = replace(engine_config(), queue=QueueConfig(max_num_queued_reqs=2))
    runner = GatedRunner()
    client = InProcessClient(loop_factory(config, runner), config, on_crowd=told.append)
    inbox = Inbox()
    try:
        client.submit([request("a"), request("b")], inbox).result()
        crowd = client.crowd()
        assert crowd is not None
        assert (crowd.num_queued, crowd.num_live, crowd.limits.max_num_queued_reqs) == (2, 2, 2)
        assert told[-1] == crowd
        runner.gate.release(1000)
        inbox.wait(lambda: inbox.finish("a") and inbox.finish("b"))
        assert told[-1] == client.crowd()
        assert told[-1].num_live == 0
    finally:
        runner.gate.release(1000)
        client.shutdown()
    assert client.crowd() is None


def test_what_the_queue_cannot_hold_is_refused_at_once_while_a_step_computes() -> None:
    config = replace(engine_config(), queue=QueueConfig(max_num_queued_reqs=2))
    runner = GatedRunner()
    client = InProcessClient(loop_factory(config, runner), config)
    inbox = Inbox()
    try:
        client.submit([request("a")], inbox).result()
        client.submit([request("b")], inbox).result()
        assert runner.started.acquire(timeout=20)  # the first step is computing
        verdict = client.submit([request("c")], inbox)
        assert verdict.done()
        assert isinstance(verdict.exception(), OverloadError)
        runner.gate.release(1000)
        inbox.wait(lambda: inbox.finish("a") and inbox.finish("b"))
        client.submit([request("c")], inbox).result()
        inbox.wait(lambda: inbox.finish("c"))
        client._intake.check()
    finally:
        runner.gate.release(1000)
        client.shutdown()


def test_whatever_happens_to_its_requests_nothing_stays_counted(gated) -> None:
    client, runner = gated
    inbox = Inbox()
    client.submit([request("done")], inbox)
    assert runner.started.acquire(timeout=20)
    client.submit([request("gone")], inbox)
    client.submit([replace(request("late"), timeout_s=0.0)], inbox)
    client.cancel(["gone"])
    runner.gate.release(1)
    assert runner.started.acquire(timeout=20)
    client.submit([request("lost")], inbox)
    runner.error = ValueError()
    runner.gate.release(1000)
    inbox.wait(lambda: all(inbox.finish(name) for name in ("done", "gone", "late", "lost")))
    assert inbox.finish("late") is FinishReason.TIMEOUT
    client._intake.check()
    assert not client._intake._entries


class Slow(NoConstraints):
    """Has a request ready when the test says so."""

    def __init__(self) -> None:
        self.made: Future[None] = Future()

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        return self.made


@pytest.mark.parametrize(("waited_s", "finish"), [(1.9, FinishReason.LENGTH), (2.1, FinishReason.TIMEOUT)])
def test_a_deadline_counts_from_when_a_request_came_and_not_from_when_its_grammar_was_read(
    waited_s: float, finish: FinishReason
) -> None:
    clock, slow, inbox, config = VirtualClock(5.0), Slow(), Inbox(), engine_config()
    client = InProcessClient(
        lambda publish: make_loop(config, LedgerRunner(4), clock, Recorder(), publish, slow), config
    )
    held = replace(GREEDY, grammar=Grammar("regex", "a"))
    verdict = client.submit([GenerateRequest("late", (1, 2), held, 0, timeout_s=2.0)], inbox)
    clock.advance(waited_s)
    assert not verdict.done()
    slow.made.set_result(None)
    verdict.result(timeout=20)
    inbox.wait(lambda: inbox.finish("late"))
    assert inbox.finish("late") is finish
    client.shutdown()
