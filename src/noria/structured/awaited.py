"""By when a process should have answered what it was asked."""

from __future__ import annotations

import math
import time

from noria.structured import wire

# For making one thing ready, from when the process works on it, which may begin with its start.
QUICK_LIMIT_S = 60.0
SLOW_LIMIT_S = 120.0
VERDICT_LIMIT_S = 150.0  # for any verdict, while there is one to come: no trial goes on for as long


class _Lane:
    """Works on so many at a time, on those that came first."""

    def __init__(self, num_at_a_time: int) -> None:
        self._num_at_a_time = num_at_a_time
        self._waiting: list[int] = []
        self.begun_s: dict[int, float] = {}  # by serial, the first one first

    def add(self, serial: int) -> None:
        self._waiting.append(serial)
        self._begin()

    def drop(self, serial: int) -> None:
        if self.begun_s.pop(serial, None) is None and serial in self._waiting:
            self._waiting.remove(serial)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self.begun_s) < self._num_at_a_time:
            self.begun_s[self._waiting.pop(0)] = time.monotonic()


class Awaited:
    """Of one process. Guarded by who has it."""

    def __init__(self) -> None:
        self._quick, self._slow = _Lane(wire.NUM_QUICK), _Lane(1)
        self._verdict_by_s = math.inf

    def add(self, serial: int, is_slow: bool) -> None:
        """Something to make ready."""
        (self._slow if is_slow else self._quick).add(serial)

    def drop(self, serial: int) -> None:
        self._quick.drop(serial)
        self._slow.drop(serial)

    def await_verdict(self) -> None:
        self._verdict_by_s = min(self._verdict_by_s, time.monotonic() + VERDICT_LIMIT_S)

    def hear_verdict(self, num_left: int) -> None:
        """num_left: that are to come."""
        self._verdict_by_s = time.monotonic() + VERDICT_LIMIT_S if num_left else math.inf

    @property
    def due_s(self) -> float:
        """When it will have been waited for too long, on the monotonic clock."""
        return min(self._verdict_by_s, *(by_s for _, by_s in self._due()), math.inf)

    def late(self, now_s: float) -> int | None:
        """Serial of what should have been made ready by now."""
        return next((serial for serial, by_s in self._due() if by_s <= now_s), None)

    def _due(self) -> list[tuple[int, float]]:
        lanes = (self._quick, QUICK_LIMIT_S), (self._slow, SLOW_LIMIT_S)
        return [
            (serial, begun_s + limit_s) for lane, limit_s in lanes for serial, begun_s in lane.begun_s.items()
        ]
