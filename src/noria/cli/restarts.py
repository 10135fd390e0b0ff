"""When a process that ended is started again."""

from __future__ import annotations

_FIRST_S = 0.1
_LONGEST_S = 10.0
_MAX_DOUBLINGS = 16  # far beyond the longest; a server may run, and one of its processes end, for years
_CALM_S = 60.0  # after as long without an end, the next one counts as the first
_MAX_FAILED_STARTS = 5


class Restarts:
    """At once at first, then ever later: something that ends as often as it starts must not take the machine."""

    def __init__(self) -> None:
        self._num_recent = 0
        self._num_failed_starts = 0
        self._last_s = float("-inf")

    def next_delay_s(self, now_s: float, was_up: bool) -> float | None:
        """After an end: how long to wait; None: it has failed to start too often.

        was_up: the process that ended had come to do what it is for.
        """
        self._num_failed_starts = 0 if was_up else self._num_failed_starts + 1
        if self._num_failed_starts >= _MAX_FAILED_STARTS:
            return None
        if now_s - self._last_s > _CALM_S:
            self._num_recent = 0
        self._last_s = now_s
        delay_s = min(_FIRST_S * 2**self._num_recent, _LONGEST_S) if self._num_recent else 0.0
        self._num_recent = min(self._num_recent + 1, _MAX_DOUBLINGS)
        return delay_s
