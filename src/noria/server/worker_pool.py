"""Threads for work that would hold the event loop up, some of which may never come to an end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar, cast

logger = logging.getLogger("noria.server")

Result = TypeVar("Result")


class NoThreadFree(Exception):
    """All threads were busy for as long as work may wait; the work was not begun."""


class WorkTooLong(Exception):
    """The work ran for longer than it may; nobody waits for it any more."""


class WorkerPool:
    """Runs work on its own threads, `num_threads` at a time. For the event loop's thread alone.

    Nothing can end a thread in which work hangs. It is left to that work, and a fresh one takes its place, as long
    as no more than `max_lost` are left so; beyond that places are missing until some of the work ends after all.

    max_wait_s: how long work waits for a thread before it is refused.
    The threads are daemons: work that hangs does not keep the process from ending.
    """

    def __init__(self, name: str, num_threads: int, max_wait_s: float, max_lost: int = 0) -> None:
        self._name = name
        self._num_threads = num_threads
        self._max_lost = max_lost
        self._max_wait_s = max_wait_s
        self._places = asyncio.Semaphore(num_threads)
        self._num_lost = 0
        self._idle: list[_Worker] = []
        self._is_closed = False

    async def run(self, work: Callable[[], Result], limit_s: float | None = None) -> Result:
        """The result of `work`. Raises what it raises, NoThreadFree and, `limit_s` after its start, WorkTooLong."""
        await self._take_place()
        loop = asyncio.get_running_loop()
        worker = self._worker()
        job = _Job(work, worker, loop, loop.create_future())
        if limit_s is not None:
            job.timer = loop.call_later(limit_s, self._give_up, job)
        worker.jobs.put(lambda: job.do(self._end))
        # The job has its own end: a caller that is cancelled does not make its thread free.
        outcome = await job.outcome
        if outcome.error is not None:
            raise outcome.error
        return cast(Result, outcome.result)

    def close(self) -> None:
        """End the threads that have nothing to do; the others end with what they do."""
        self._is_closed = True
        for worker in self._idle:
            worker.jobs.put(None)
        self._idle.clear()

    async def _take_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            await asyncio.wait_for(self._places.acquire(), self._max_wait_s)
        except (asyncio.TimeoutError, TimeoutError):
            raise NoThreadFree from None

    def _worker(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        try:
            return _Worker(self._name)
        except RuntimeError:  # the system gives no more threads
            self._places.release()
            raise

    def _give_up(self, job: _Job) -> None:
        job.is_lost = True
        job.settle(_Outcome(error=WorkTooLong()))
        self._num_lost += 1
        logger.error("work on a %s thread does not end; %d threads hang so", self._name, self._num_lost)
        if self._num_lost <= self._max_lost:
            self._places.release()

    def _end(self, job: _Job, outcome: _Outcome) -> None:
        if job.timer is not None:
            job.timer.cancel()
        if len(self._idle) < self._num_threads and not self._is_closed:
            self._idle.append(job.worker)
        else:
            job.worker.jobs.put(None)
        # The place of a lost job is long somebody else's, unless there were too many such.
        if not job.is_lost or self._num_lost > self._max_lost:
            self._places.release()
        self._num_lost -= job.is_lost
        job.settle(outcome)


@dataclass(frozen=True, slots=True)
class _Outcome:
    result: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    worker: _Worker
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[_Outcome]
    timer: asyncio.TimerHandle | None = None
    is_lost: bool = False  # given up while it runs

    def do(self, then: Callable[[_Job, _Outcome], None]) -> None:
        """On the worker's thread; `then` is called on the event loop's."""
        try:
            outcome = _Outcome(self.work())
        except Exception as error:
            outcome = _Outcome(error=error)
        try:
            self.loop.call_soon_threadsafe(then, self, outcome)
        except RuntimeError:
            self.worker.jobs.put(None)  # the loop is closed: nobody waits, and nobody will send more

    def settle(self, outcome: _Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class _Worker:
    """A thread that does one job after another, until it finds None among them."""

    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            job = self.jobs.get()
            if job is None:
                return
            job()
            del job  # else it, and what it holds, stays until the next
