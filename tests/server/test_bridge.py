from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from noria.config.errors import RequestError
from noria.core.outputs import Delta, FinishReason
from noria.engine.client import Sink
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams
from noria.server.bridge import Bridge, Inbox
from support_server import FakeEngine, says


def request(name: str) -> GenerateRequest:
    return GenerateRequest(name, (5,), SamplingParams(max_tokens=4), 0)


class CountingLoop:
    """Counts how often the engine's thread wakes the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.num_wakes = 0
        self._wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = self  # type: ignore[method-assign, assignment]

    def __call__(self, *arguments: object) -> object:
        self.num_wakes += 1
        return self._wake(*arguments)  # type: ignore[arg-type]


def test_a_step_wakes_the_loop_once_however_many_requests_it_serves() -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("a b c d"), is_auto=False)
        bridge, inboxes = Bridge(engine), [Inbox() for _ in range(50)]
        for i, inbox in enumerate(inboxes):
            await bridge.submit([request(f"r{i}")], inbox)
        loop = CountingLoop(asyncio.get_running_loop())
        for step in range(1, 4):
            engine.step()
            assert loop.num_wakes == step
            for i, inbox in enumerate(inboxes):
                assert [delta.request_id for delta in await inbox.take()] == [f"r{i}"]

    asyncio.run(scenario())


def test_steps_that_come_faster_than_the_loop_turns_share_a_wake() -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("a b c d"), is_auto=False)
        bridge, inbox = Bridge(engine), Inbox()
        await bridge.submit([request("r")], inbox)
        loop = CountingLoop(asyncio.get_running_loop())
        for _ in range(3):
            engine.step()
        assert loop.num_wakes == 1
        assert len(await inbox.take()) == 3

    asyncio.run(scenario())


def test_every_delta_arrives_once_and_in_order_from_another_thread() -> None:
    async def scenario() -> list[int]:
        engine = FakeEngine(lambda r: [], is_auto=False)
        engine.script = lambda r: (
            [Delta(r.request_id, (i,)) for i in range(500)]
            + [Delta(r.request_id, finish=FinishReason.LENGTH)]
        )
        bridge, inbox = Bridge(engine), Inbox()
        await bridge.submit([request("r")], inbox)
        thread = threading.Thread(target=lambda: [engine.step() for _ in range(501)])
        thread.start()
        deltas: list[Delta] = []
        while not deltas or deltas[-1].finish is None:
            deltas += await inbox.take()
        thread.join()
        assert bridge.num_open == 0
        return [i for delta in deltas for i in delta.token_ids]

    assert asyncio.run(scenario()) == list(range(500))


def test_nothing_is_delivered_after_a_cancel_and_nothing_is_left_behind() -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("a b c d"), is_auto=False)
        bridge, inbox = Bridge(engine), Inbox()
        await bridge.submit([request("a"), request("b")], inbox)
        bridge.cancel(["a", "unknown"])
        assert engine.cancelled == ["a"]
        bridge.cancel(["a"])
        assert engine.cancelled == ["a"]
        while engine.is_busy:
            engine.step()
        assert {delta.request_id for delta in await inbox.take()} == {"b"}
        assert bridge.num_open == 0

    asyncio.run(scenario())


def test_a_stop_tells_the_engine_that_it_is_one_and_a_cancel_that_it_is_none() -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("a b c d"), is_auto=False)
        bridge, inbox = Bridge(engine), Inbox()
        await bridge.submit([request("a"), request("b")], inbox)
        bridge.stop("a")
        bridge.cancel(["b"])
        bridge.stop("a")
        assert engine.cancelled == ["a", "b"]
        assert engine.cancel_reasons == [FinishReason.STOP, FinishReason.ABORT]
        assert bridge.num_open == 0

    asyncio.run(scenario())


def test_a_refused_submission_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.submit_error = RequestError("no")
        bridge = Bridge(engine)
        with pytest.raises(RequestError):
            await bridge.submit([request("a"), request("b")], Inbox())
        assert bridge.num_open == 0
        assert engine.cancelled == []  # under overload the engine hears of each refused request but once
        engine.shutdown()

    asyncio.run(scenario())


def test_failing_all_ends_every_waiting_request() -> None:
    async def scenario() -> None:
        engine = FakeEngine(is_auto=False)
        bridge, inboxes = Bridge(engine), [Inbox(), Inbox()]
        for i, inbox in enumerate(inboxes):
            await bridge.submit([request(f"{i}a"), request(f"{i}b")], inbox)
        waiting = [asyncio.ensure_future(inbox.take()) for inbox in inboxes]
        await asyncio.sleep(0)
        bridge.fail_all(RuntimeError("the end"))
        for taking in waiting:
            with pytest.raises(RuntimeError, match="the end"):
                await taking

    asyncio.run(scenario())


@pytest.mark.parametrize("num_on_the_way", [0, 1])
@pytest.mark.parametrize("num_in_the_inbox", [0, 1, 2])
def test_what_came_before_a_failure_is_given_first(num_in_the_inbox: int, num_on_the_way: int) -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("a b c d e f g"), is_auto=False)
        bridge, inbox = Bridge(engine), Inbox()
        await bridge.submit([request("r")], inbox)
        for _ in range(num_in_the_inbox):
            engine.step()
        await asyncio.sleep(0)
        for _ in range(num_on_the_way):
            engine.step()
        in_time = list(engine.sent)
        bridge.fail_all(RuntimeError("the end"))
        engine.step()  # too late
        await asyncio.sleep(0)
        if in_time:
            assert await inbox.take() == in_time
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the end"):
                await inbox.take()

    asyncio.run(scenario())


def test_a_request_whose_end_is_on_its_way_does_not_fail_with_the_others() -> None:
    async def scenario() -> None:
        engine = FakeEngine(lambda r: [Delta(r.request_id, (5,), finish=FinishReason.LENGTH)], is_auto=False)
        bridge, inbox = Bridge(engine), Inbox()
        await bridge.submit([request("r")], inbox)
        engine.step()
        bridge.fail_all(RuntimeError("the end"))
        (delta,) = await inbox.take()
        assert delta.finish is FinishReason.LENGTH
        assert bridge.num_open == 0

    asyncio.run(scenario())


def test_deltas_for_a_loop_that_has_closed_are_dropped() -> None:
    engine = FakeEngine(says("a b c"), is_auto=False)
    bridge = Bridge(engine)

    async def scenario() -> None:
        await bridge.submit([request("a")], Inbox())

    asyncio.run(scenario())
    while engine.is_busy:
        engine.step()
    assert bridge._arrived == []


def test_deltas_that_a_loop_closed_upon_keep_none_of_the_next_loop_from_arriving() -> None:
    engine = FakeEngine(says("a b c"), is_auto=False)
    bridge = Bridge(engine)
    first = asyncio.new_event_loop()
    first.run_until_complete(bridge.submit([request("a")], Inbox()))
    engine.step()  # the loop is told, and closed before it looks
    first.close()

    async def scenario() -> None:
        inbox = Inbox()
        await bridge.submit([request("b")], inbox)
        engine.step()
        assert [delta.request_id for delta in await inbox.take()] == ["b"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


class Undecided(FakeEngine):
    """Takes what is submitted, and lets the test say when its verdict is known."""

    def __init__(self) -> None:
        super().__init__(says("a b c d"), is_auto=False)
        self.verdict: Future[None] = Future()

    def submit(self, requests: Sequence[GenerateRequest], sink: Sink) -> Future[None]:
        super().submit(requests, sink).result()
        return self.verdict


def test_a_submission_waits_for_a_verdict_that_comes_from_elsewhere() -> None:
    async def scenario() -> None:
        engine = Undecided()
        bridge, inbox = Bridge(engine), Inbox()
        waiting = asyncio.ensure_future(bridge.submit([request("a")], inbox))
        await asyncio.sleep(0)
        assert not waiting.done()
        engine.step()  # news may come before the verdict
        threading.Thread(target=lambda: engine.verdict.set_result(None)).start()
        await waiting
        assert [delta.request_id for delta in await inbox.take()] == ["a"]

    asyncio.run(scenario())


def test_a_verdict_for_a_loop_that_has_closed_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    engine = Undecided()

    async def scenario() -> None:
        waiting = asyncio.ensure_future(Bridge(engine).submit([request("a")], Inbox()))
        await asyncio.sleep(0)
        assert not waiting.done()

    asyncio.run(scenario())
    engine.verdict.set_result(None)
    assert caplog.records == []


def test_whoever_gives_up_waiting_for_a_verdict_takes_its_sequences_along() -> None:
    async def scenario() -> None:
        engine = Undecided()
        bridge = Bridge(engine)
        waiting = asyncio.ensure_future(bridge.submit([request("a"), request("b")], Inbox()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert engine.cancelled == ["a", "b"]
        assert bridge.num_open == 0

    asyncio.run(scenario())
