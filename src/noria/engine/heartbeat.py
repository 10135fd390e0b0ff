"""Whether an engine moves, as seen from outside."""

from __future__ import annotations

from collections.abc import Callable

from noria.engine.messages import EngineStats

_BLIND_S = 10.0  # after a longer time without a look nothing is known of the time between


class Heartbeat:
    """Judges an engine by its progress: one that has work must move, one that has none must be there.

    stats: the engine's latest snapshot. clock: seconds, steadily rising.
    """

    def __init__(self, stats: Callable[[], EngineStats], clock: Callable[[], float]) -> None:
        self._stats = stats
        self._clock = clock
        self._last_seen = (-1, -1)
        self._progress_s = clock()  # when the engine was last known to move, or to have nothing to do
        self._looked_s = clock()

    def silence_s(self, num_open: int = 0) -> float:
        """For how long it has not done what it should; infinite for one that is dead.

        num_open: sequences that the caller waits for.
        """
        now_s = self._clock()
        stats = self._stats()
        has_work = num_open > 0 or stats.num_running > 0 or stats.num_waiting > 0
        seen = (stats.step, stats.progress)
        is_blind = now_s - self._looked_s > _BLIND_S
        if seen != self._last_seen or not has_work or is_blind:
            self._progress_s = now_s
        self._last_seen = seen
        self._looked_s = now_s
        if not stats.is_alive:
            return float("inf")
        return max(now_s - self._progress_s, stats.beat_age_s)
