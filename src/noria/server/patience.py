"""How long a connection is waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

logger = logging.getLogger("noria.server")


class Awaited(Enum):
    """What a server waits for on a connection."""

    NOTHING = "nothing"
    HEAD = "headers"
    BODY = "body"


class Timer:
    """Calls `action` once, some time after its last start."""

    def __init__(self, loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
        self._loop = loop
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self, after_s: float) -> None:
        self.stop()
        self._handle = self._loop.call_later(after_s, self._fire)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._action()


class UnreadWatch:
    """Cuts a connection whose client reads nothing, for `limit_s`, of what waits to be sent.

    That may be a stream that is held up, the rest of an answer, or of one that a closed connection still owes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, limit_s: float) -> None:
        self._transport = transport
        self._limit_s = limit_s
        self._timer = Timer(loop, self._look)
        self._num_bytes = 0  # that waited at the last look

    def begin(self) -> None:
        """From now on, until nothing waits any more. Nothing may be added meanwhile."""
        self._num_bytes = self._transport.get_write_buffer_size()
        if self._num_bytes:
            self._timer.start(self._limit_s)

    def end(self) -> None:
        self._timer.stop()

    def _look(self) -> None:
        before = self._num_bytes
        self.begin()
        if self._num_bytes >= before:
            logger.warning("a client has read nothing for %g s; its connection is cut", self._limit_s)
            self.end()
            self._transport.abort()
