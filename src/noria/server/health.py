"""What the server makes of the engine's health."""

from __future__ import annotations

import asyncio
import logging

from noria.engine.heartbeat import Heartbeat
from noria.server.bridge import Bridge
from noria.server.errors import engine_lost

logger = logging.getLogger("noria.server")

_LOOK_EVERY_S = 0.5
_READY_SHARE = 0.5  # of the time after which an engine counts as hung: it gets no new work from then on


class Watch:
    """Looks at the engine all the time; when it is dead or hung, ends what waits for it.

    hang_s: an engine that does not move for so long counts as hung.
    """

    def __init__(self, heartbeat: Heartbeat, bridge: Bridge, hang_s: float) -> None:
        self._heartbeat = heartbeat
        self._bridge = bridge
        self._hang_s = hang_s

    def is_alive(self) -> bool:
        return self._silence_s() <= self._hang_s

    def is_ready(self) -> bool:
        """It may get new work."""
        return self._silence_s() <= self._hang_s * _READY_SHARE

    async def run(self) -> None:
        was_alive = True
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            was_alive = self._look(was_alive)

    def _silence_s(self) -> float:
        return self._heartbeat.silence_s(self._bridge.num_open)

    def _look(self, was_alive: bool) -> bool:
        is_alive = self.is_alive()
        if not is_alive:
            if was_alive:
                logger.warning("the engine is dead or makes no progress; open requests are ended")
            self._bridge.fail_all(engine_lost())
        return is_alive
