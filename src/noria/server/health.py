"""Whether the engine lives and moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from noria.engine.messages import EngineStats
from noria.server.bridge import Bridge
from noria.server.errors import engine_lost

logger = logging.getLogger("noria.server")

_LOOK_EVERY_S = 1.0
_BLIND_S = 10.0  # after a longer time without a look nothing is known of the time between


class Heartbeat:
    """Judges the engine by its progress: one that has work and makes no step for `hang_s` counts as hung.

    stats: the engine's latest snapshot. clock: seconds, steadily rising.
    """

    def __init__(self, stats: Callable[[], EngineStats], hang_s: float, clock: Callable[[], float]) -> None:
        self._stats = stats
        self._hang_s = hang_s
        self._clock = clock
        self._last_step = -1
        self._progress_s = clock()  # when the engine was last known to move, or to have nothing to do
        self._looked_s = clock()

    def is_alive(self, num_open: int) -> bool:
        """num_open: sequences that the server waits for."""
        now_s = self._clock()
        stats = self._stats()
        has_work = num_open > 0 or stats.num_running > 0 or stats.num_waiting > 0
        is_blind = now_s - self._looked_s > _BLIND_S
        if stats.step != self._last_step or not has_work or is_blind:
            self._progress_s = now_s
        self._last_step = stats.step
        self._looked_s = now_s
        return stats.is_alive and now_s - self._progress_s <= self._hang_s


class Watch:
    """Looks at the engine once a second; when it is dead or hung, ends what waits for it."""

    def __init__(self, heartbeat: Heartbeat, bridge: Bridge) -> None:
        self._heartbeat = heartbeat
        self._bridge = bridge

    def is_alive(self) -> bool:
        return self._heartbeat.is_alive(self._bridge.num_open)

    async def run(self) -> None:
        was_alive = True
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            was_alive = self._look(was_alive)

    def _look(self, was_alive: bool) -> bool:
        is_alive = self.is_alive()
        if not is_alive:
            if was_alive:
                logger.error("the engine is dead or makes no progress; open requests are ended")
            self._bridge.fail_all(engine_lost())
        return is_alive
