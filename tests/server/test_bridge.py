from __future__ import annotations

import asyncio
import threading

import pytest

from noria.config.errors import RequestError
from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams
from noria.server.bridge import Bridge, Inbox
from noria.server.stop_notes import StopNotes
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
        bridge, inboxes = Bridge(engine, StopNotes()), [Inbox() for _ in range(50)]
        for i, inbox in enumerate(inboxes):
            bridge.submit([request(f"r{i}")], inbox)
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
        bridge, inbox = Bridge(engine, StopNotes()), Inbox()
        bridge.submit([request("r")], inbox)
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
        bridge, inbox = Bridge(engine, StopNotes()), Inbox()
        bridge.submit([request("r")], inbox)
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
        notes = StopNotes()
        bridge, inbox = Bridge(engine, notes), Inbox()
        bridge.submit([request("a"), request("b")], inbox)
        bridge.cancel(["a", "unknown"])
        assert engine.cancelled == ["a"]
        bridge.cancel(["a"])
        assert engine.cancelled == ["a"]
        while engine.is_busy:
            engine.step()
        assert {delta.request_id for delta in await inbox.take()} == {"b"}
        assert (bridge.num_open, len(notes)) == (0, 0)

    asyncio.run(scenario())


def test_a_stop_is_noted_until_the_engine_has_let_go() -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("a b c d"), is_auto=False)
        notes = StopNotes()
        bridge, inbox = Bridge(engine, notes), Inbox()
        bridge.submit([request("a")], inbox)
        bridge.stop("a")
        assert "a" in notes
        assert engine.cancelled == ["a"]
        engine.step()
        await asyncio.sleep(0)
        assert len(notes) == 0
        bridge.stop("a")
        assert len(notes) == 0

    asyncio.run(scenario())


def test_a_stop_that_meets_the_natural_end_leaves_no_note() -> None:
    async def scenario() -> None:
        engine = FakeEngine(lambda r: [Delta(r.request_id, finish=FinishReason.LENGTH)], is_auto=False)
        notes = StopNotes()
        bridge, inbox = Bridge(engine, notes), Inbox()
        bridge.submit([request("a")], inbox)
        engine.step()  # the end is on its way to the loop
        bridge.stop("a")
        await asyncio.sleep(0)
        assert len(notes) == 0

    asyncio.run(scenario())


def test_a_refused_submission_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.submit_error = RequestError("no")
        bridge = Bridge(engine, StopNotes())
        with pytest.raises(RequestError):
            bridge.submit([request("a"), request("b")], Inbox())
        assert bridge.num_open == 0
        engine.shutdown()

    asyncio.run(scenario())


def test_failing_all_ends_every_waiting_request() -> None:
    async def scenario() -> None:
        engine = FakeEngine(is_auto=False)
        bridge, inboxes = Bridge(engine, StopNotes()), [Inbox(), Inbox()]
        for i, inbox in enumerate(inboxes):
            bridge.submit([request(f"{i}a"), request(f"{i}b")], inbox)
        waiting = [asyncio.ensure_future(inbox.take()) for inbox in inboxes]
        await asyncio.sleep(0)
        bridge.fail_all(RuntimeError("the end"))
        for taking in waiting:
            with pytest.raises(RuntimeError, match="the end"):
                await taking

    asyncio.run(scenario())


def test_deltas_for_a_loop_that_has_closed_are_dropped() -> None:
    engine = FakeEngine(says("a b c"), is_auto=False)
    bridge = Bridge(engine, StopNotes())

    async def scenario() -> None:
        bridge.submit([request("a")], Inbox())

    asyncio.run(scenario())
    while engine.is_busy:
        engine.step()
    assert bridge._arrived == []
