"""What the dashboard shows: the latest steps and ends, and the state of every block, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from noria.engine.messages import EngineStats, RequestRecord, StepRecord

MAX_STEPS = 240  # of history that a page gets when it connects
MAX_ENDS = 480
MAX_ITEMS = 8192  # shares of steps and block numbers that one message may tell

Step = tuple[int, StepRecord]
End = tuple[int, RequestRecord]


@dataclass(frozen=True, slots=True)
class News:
    """What has happened after some record. Records are numbered in the order they were made, ends and steps alike.

    blocks: the state of every block (core.kv: FREE, CACHED, USED) after all this; None where `steps` and `ends`
        are all that has changed since the last news.
    """

    last: int  # number of the latest record
    life: int  # counts the engines that have lived
    steps: tuple[Step, ...]
    ends: tuple[End, ...]
    blocks: bytes | None


class Feed:
    """A RecordListener. Costs a step an append to a bounded history, whether or not anybody watches.

    Filled on the engine's thread, read on the event loop's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._steps: deque[Step] = deque(maxlen=MAX_STEPS)
        self._ends: deque[End] = deque(maxlen=MAX_ENDS)
        self._blocks = bytearray()
        self._last = 0
        self._life = 0
        self._last_step = -1

    def on_step(self, record: StepRecord) -> None:
        with self._lock:
            if record.step <= self._last_step or len(self._blocks) != record.num_blocks:
                self._begin_life(record.num_blocks)
            self._last_step = record.step
            self._last += 1
            self._steps.append((self._last, record))
            self._change(record.changed_blocks)

    def on_request(self, record: RequestRecord) -> None:
        with self._lock:
            self._last += 1
            self._ends.append((self._last, record))
            self._change(record.changed_blocks)

    def heed(self, stats: EngineStats) -> None:
        """Begin anew where the engine is dead: its blocks and sequences went with it."""
        with self._lock:
            if not stats.is_alive and self._steps:
                self._begin_life(stats.num_blocks)

    def latest(self) -> News:
        """As much of the history as fits, and the state of every block."""
        with self._lock:
            steps = _fitting(self._steps, 0)
            return News(self._last, self._life, steps, tuple(self._ends), bytes(self._blocks))

    def since(self, before: News) -> News:
        """What followed `before`; the same as `latest` when more has followed than is kept or fits."""
        with self._lock:
            steps, ends = _fitting(self._steps, before.last), _after(self._ends, before.last)
            num_missed = self._last - before.last - len(steps) - len(ends)
            if num_missed == 0 and before.life == self._life:
                return News(self._last, self._life, steps, ends, None)
        return self.latest()

    def _begin_life(self, num_blocks: int) -> None:
        # The first engine, or a new one in the place of one that died: nothing of the old one's state is left.
        self._life += 1
        self._blocks = bytearray(num_blocks)
        self._last_step = -1
        self._steps.clear()
        self._ends.clear()

    def _change(self, changes: tuple[tuple[int, int], ...]) -> None:
        for block, state in changes:
            if block < len(self._blocks):  # else of an engine whose first step is still to come
                self._blocks[block] = state


def _fitting(steps: deque[Step], last: int) -> tuple[Step, ...]:
    """The latest steps after record `last` that fit in a message, oldest first."""
    fitting: list[Step] = []
    num_items = 0
    for number, record in reversed(steps):
        num_items += sum(1 + len(work.new_blocks) for work in record.work) + len(record.changed_blocks)
        if number <= last or (num_items > MAX_ITEMS and fitting):
            break
        fitting.append((number, record))
    return tuple(reversed(fitting))


def _after(ends: deque[End], last: int) -> tuple[End, ...]:
    found: list[End] = []
    for number, record in reversed(ends):
        if number <= last:
            break
        found.append((number, record))
    return tuple(reversed(found))
