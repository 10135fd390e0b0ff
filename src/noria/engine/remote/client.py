"""An EngineClient whose engine is another process. Lives on an event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from noria.config.errors import EngineError, NoriaError, RequestError
from noria.core.outputs import Delta, FinishReason
from noria.engine.client import Sink, verdict_of
from noria.engine.crowd import Crowd
from noria.engine.facts import read_facts
from noria.engine.messages import EngineFacts, EngineRequest, EngineStats
from noria.engine.records import Recorder
from noria.engine.remote import wire
from noria.engine.remote.line import Line
from noria.engine.remote.page import EngineState, Page
from noria.engine.remote.peers import Peers
from noria.engine.sinks import Sinks

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.2
_FIRST_LOOKS_S = 0.01  # while everything waits for the first engine


@dataclass(slots=True)
class _Link:
    """To one engine. is_welcome: it has answered."""

    incarnation: int
    session: int
    is_welcome: bool = False


class RemoteClient:
    """Satisfies EngineClient for the event loop's thread; `stats` and `recorder` may be read from any.

    Follows the engine from one incarnation to the next. When one ends, its requests get a last delta with
    FinishReason.LOST and what is submitted is refused with EngineError until the next is there.

    page, directory: those of the engine's host. slot: of this API process.
    """

    def __init__(self, page: Page, slot: int, directory: str) -> None:
        self.recorder = Recorder()
        # Told the facts of each engine before it gets a request from here.
        self.on_facts: Callable[[EngineFacts], None] = lambda facts: None
        self.peers = Peers(self._tell)
        self._page = page
        self._slot = slot
        self._line = Line(directory, f"api-{slot}", self._take)
        self._link: _Link | None = None
        self._numbers = itertools.count(1)
        self._sinks = Sinks()
        self._verdicts: dict[int, Future[None]] = {}
        self._linked = asyncio.Event()  # once
        self._timer: asyncio.Handle = asyncio.get_running_loop().call_soon(self._look)

    async def facts(self) -> EngineFacts:
        """Of the first engine; waits until they are known, which is before it is ready."""
        while (row := self._page.engine()).state is EngineState.DOWN:
            await asyncio.sleep(_FIRST_LOOKS_S)
        return read_facts(self._line.directory, row.incarnation)

    async def linked(self) -> None:
        """Waits until an engine takes requests, for the first time."""
        await self._linked.wait()

    def submit(self, requests: Sequence[EngineRequest], sink: Sink) -> Future[None]:
        link = self._link
        if link is None or not link.is_welcome:
            return verdict_of(_refuse)
        verdict: Future[None] = Future()
        serial = next(self._numbers)
        try:
            self._check_names(requests)
            self._check_crowd(requests)
            self._line.send(wire.Submit(link.session, serial, wire.packed(requests)))
        except NoriaError as error:
            verdict.set_exception(error)
            return verdict
        self._verdicts[serial] = verdict
        for request in requests:
            self._sinks.register(request.request_id, sink)
        verdict.add_done_callback(lambda done: self._forget_refused(done, requests))
        return verdict

    def cancel(self, request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
        if request_ids:
            self._tell(lambda session: wire.Cancel(session, tuple(request_ids), finish))

    def stats(self) -> EngineStats:
        return self._page.stats(self._is_linked())

    def crowd(self) -> Crowd | None:
        return self._page.crowd() if self._is_linked() else None

    def shutdown(self) -> None:
        """Leave the engine, which cancels what this process asked for once it sees that nobody is there."""
        self._timer.cancel()
        self._lose("this process ends")
        self._line.close()

    def _tell(self, command: Callable[[int], wire.Command]) -> bool:
        """Send what `command` makes of the session; whether there is an engine to send it to."""
        if self._link is None:
            return False
        try:
            self._line.send(command(self._link.session))
        except EngineError as error:
            self._lose_engine(str(error))
            return False
        return True

    def _is_linked(self) -> bool:
        row, link = self._page.engine(), self._link
        is_linked = link is not None and link.is_welcome and link.incarnation == row.incarnation
        return is_linked and row.state is EngineState.READY

    def _check_crowd(self, requests: Sequence[EngineRequest]) -> None:
        # The engine would refuse them too; it need not hear of what it refuses.
        crowd = self._page.crowd()
        if crowd is not None and requests:
            crowd.admit(crowd.work_of(requests), requests[0].timeout_s)

    def _check_names(self, requests: Sequence[EngineRequest]) -> None:
        # The engine would refuse them too, but their news is told apart here.
        for request in requests:
            if self._sinks.knows(request.request_id):
                raise RequestError(f"request id {request.request_id!r} is in use", "request_id")

    def _forget_refused(self, verdict: Future[None], requests: Sequence[EngineRequest]) -> None:
        if verdict.exception() is not None:
            for request in requests:
                self._sinks.forget(request.request_id)

    # Following the engine

    def _look(self) -> None:
        self._page.api_beat(self._slot)
        row = self._page.engine()
        if self._link is not None:
            if row.incarnation != self._link.incarnation or row.state is not EngineState.READY:
                self._lose_engine("the engine ended")
            elif self._page.lost_session(self._slot) == self._link.session:
                self._lose_engine("the engine could not reach this process for too long")
        if self._link is None and row.state is EngineState.READY:
            self._greet(row.incarnation)
        self._line.read()
        wait_s = _LOOK_EVERY_S if self._linked.is_set() else _FIRST_LOOKS_S
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _greet(self, incarnation: int) -> None:
        self.on_facts(read_facts(self._line.directory, incarnation))
        api_incarnation = self._page.api_incarnation(self._slot)
        # Unique among all processes that this engine ever meets.
        session = (self._slot << 48) + (api_incarnation << 32) + next(self._numbers)
        self._link = _Link(incarnation, session)
        self._line.connect(incarnation)
        self._line.send(wire.Hello(session, self._slot, api_incarnation, self._line.endpoint))

    def _lose_engine(self, reason: str) -> None:
        # Not an error of ours: whoever ended the engine, or found it ended, has said so.
        log.info("%s; requests lost with it: %d", reason, len(self._sinks.open_requests()))
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        """End the link, and what is open on it."""
        if self._link is None:
            return
        self._line.disconnect()
        self._link = None
        self.peers.lose()
        verdicts, self._verdicts = self._verdicts, {}
        for verdict in verdicts.values():
            verdict.set_exception(EngineError(reason))
        lost = [Delta(i, finish=FinishReason.LOST, error=reason) for i in self._sinks.open_requests()]
        self._sinks.publish(lost)

    # Messages

    def _take(self, message: wire.Message) -> None:
        link = self._link
        if link is None or message.session != link.session:
            return  # of a link that is lost
        if isinstance(message, wire.News):
            self._record(message)
            self.cancel(self._sinks.publish(message.deltas))
        elif isinstance(message, wire.Verdict):
            self._decide(message)
        elif isinstance(message, wire.Welcome):
            link.is_welcome = True
            self._linked.set()
        else:
            self.peers.take(message)

    def _record(self, news: wire.News) -> None:
        for step in news.steps:
            self.recorder.record_step(step)
        for request in news.requests:
            self.recorder.record_request(request)

    def _decide(self, message: wire.Verdict) -> None:
        verdict = self._verdicts.pop(message.serial)
        if message.error is None:
            verdict.set_result(None)
        else:
            verdict.set_exception(wire.error_of(message.error))


def _refuse() -> None:
    raise EngineError("the engine is not running")
