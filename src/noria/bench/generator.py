"""Sends a load. Instants are absolute: a late send delays no other, and how late it was is part of the result."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from noria.bench.outcome import Outcome, Status
from noria.bench.pieces import Planned
from noria.bench.play import Play
from noria.bench.target import Answer, Flight, Target

_LOOK_EVERY_S = 0.25
_EARLY_S = 0.0005  # a timer that fires earlier than this is waited for again


@dataclass(slots=True)
class _Open:
    """A request that was sent. Instants: time.perf_counter()."""

    planned: Planned
    arrival_s: float
    flight: Flight


class Generator:
    """Sends one play at one target, once.

    limit_s: after which a request has failed. on_look: called four times a second.
    outcomes: of all that ended so far. Instants in them are seconds since `origin_s`, which is time.perf_counter()'s.
    """

    def __init__(
        self,
        target: Target,
        play: Play,
        limit_s: float,
        on_look: Callable[[Generator], None] = lambda _: None,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.origin_s = 0.0
        self.num_sent = 0
        self.is_stopped = False
        self._target = target
        self._play = play
        self._limit_s = limit_s
        self._on_look = on_look
        self._next = 0  # into play.due
        self._waiting: deque[tuple[float, int]] = deque()  # due, but there is no place: (arrival, index)
        self._open: dict[int, _Open] = {}
        self._coming = _Coming()

    async def run(self) -> list[Outcome]:
        """Until everything has ended, or `stop`."""
        with _no_collections():
            self.origin_s = time.perf_counter()
            self._tick()
            try:
                while not await self._coming.ended(_LOOK_EVERY_S):
                    self._look()
            finally:
                self.stop()
                await self._coming.ended(_LOOK_EVERY_S)
        return self.outcomes

    @property
    def now_s(self) -> float:
        return time.perf_counter() - self.origin_s

    @property
    def num_open(self) -> int:
        return len(self._open)

    def open_arrivals(self) -> list[tuple[int, float, bool]]:
        """Of those that are due and have not ended: index, arrival, and whether the first token has come."""
        sent = [
            (index, one.arrival_s - self.origin_s, one.flight.has_token) for index, one in self._open.items()
        ]
        return sent + [(index, arrival_s - self.origin_s, False) for arrival_s, index in self._waiting]

    def stop(self) -> None:
        """Send nothing more, and cut what is under way."""
        self.is_stopped = True
        self._waiting.clear()
        for one in list(self._open.values()):
            one.flight.end(Status.CUT)
        self._settle()

    def _look(self) -> None:
        now_s = time.perf_counter()
        for one in list(self._open.values()):
            if now_s - one.arrival_s > self._limit_s:
                one.flight.end(Status.TIMEOUT)
        if not self.is_stopped:  # what is being cut tells of nothing any more
            self._on_look(self)
        self._settle()

    def _tick(self) -> None:
        """Take what is due, and come again for the next."""
        due, now_s = self._play.due, self.now_s
        if self._play.is_closed:
            self._fill(time.perf_counter())
            return
        while not self._is_over(now_s) and self._next < len(due) and due[self._next][0] <= now_s + _EARLY_S:
            arrival_s, index = due[self._next]
            self._next += 1
            self._arrive(self.origin_s + arrival_s, index)
        if not self._is_over(now_s) and self._next < len(due):
            asyncio.get_running_loop().call_later(max(0.0, due[self._next][0] - self.now_s), self._tick)
        self._settle()

    def _fill(self, now_s: float) -> None:
        """In a closed loop a request arrives when there is a place for it."""
        due = self._play.due
        while self._has_place() and self._next < len(due) and not self._is_over(now_s - self.origin_s):
            index = due[self._next][1]
            self._next += 1
            self._send(now_s, index)
        self._settle()

    def _arrive(self, arrival_s: float, index: int) -> None:
        if self._has_place():
            self._send(arrival_s, index)
        else:
            self._waiting.append((arrival_s, index))

    def _has_place(self) -> bool:
        most = self._play.max_concurrency
        # A conversation between two turns keeps its place in a closed loop: it is a user who thinks.
        thinking = self._coming.num_turns if self._play.is_closed else 0
        return most is None or len(self._open) + thinking < most

    def _send(self, arrival_s: float, index: int) -> None:
        planned = self._play.requests[index]
        self.num_sent += 1
        flight = self._target.send(planned, lambda answer: self._ended(index, answer))
        self._open[index] = _Open(planned, arrival_s, flight)

    def _ended(self, index: int, answer: Answer) -> None:
        one = self._open.pop(index)
        self.outcomes.append(_outcome(one, answer, self.origin_s))
        follower = self._play.followers.get(index)
        if follower is not None and answer.status is Status.OK and not self._is_over(self.now_s):
            self._coming.num_turns += 1
            arrival_s = answer.end_s + self._play.requests[follower].pause_s
            delay_s = max(0.0, arrival_s - time.perf_counter())
            asyncio.get_running_loop().call_later(delay_s, self._turn, arrival_s, follower)
        while self._waiting and self._has_place():
            self._send(*self._waiting.popleft())
        if self._play.is_closed:
            self._fill(time.perf_counter())
        self._settle()

    def _turn(self, arrival_s: float, index: int) -> None:
        self._coming.num_turns -= 1
        if not self._is_over(self.now_s):
            self._arrive(arrival_s, index)
        elif self._play.is_closed:
            self._fill(time.perf_counter())
        self._settle()

    def _is_over(self, now_s: float) -> bool:
        limit_s = self._play.duration_s
        return self.is_stopped or (limit_s is not None and now_s >= limit_s)

    def _settle(self) -> None:
        is_sent = self._next >= len(self._play.due) or self._is_over(self.now_s)
        if (
            is_sent
            and not self._open
            and not self._waiting
            and (self._coming.num_turns == 0 or self.is_stopped)
        ):
            self._coming.set_ended()


class _Coming:
    """num_turns: of conversations that will be due. Knows whether everything has ended."""

    def __init__(self) -> None:
        self.num_turns = 0
        self._end = asyncio.Event()

    def set_ended(self) -> None:
        self._end.set()

    async def ended(self, limit_s: float) -> bool:
        """Whether it has, after at most this long."""
        try:
            await asyncio.wait_for(self._end.wait(), limit_s)
        except asyncio.TimeoutError:
            return False
        return True


def _outcome(one: _Open, answer: Answer, origin_s: float) -> Outcome:
    planned = one.planned
    return Outcome(
        index=planned.index,
        arrival_s=one.arrival_s - origin_s,
        sent_s=answer.sent_s - origin_s,
        chunk_s=tuple(moment_s - origin_s for moment_s in answer.chunk_s),
        chunk_tokens=answer.chunk_tokens,
        end_s=answer.end_s - origin_s,
        status=answer.status,
        num_prompt=answer.num_prompt,
        num_output=answer.num_output,
        num_planned=answer.num_planned,
        num_asked=planned.num_output,
        num_cached=answer.num_cached,
        queue_wait_s=answer.queue_wait_s,
        num_preemptions=answer.num_preemptions,
        error=answer.error,
        text=answer.text,
        session=planned.session,
        turn=planned.turn,
    )


@contextmanager
def _no_collections() -> Iterator[None]:
    """The garbage collector would stop the sending for as long as it looks through everything that was noted."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
