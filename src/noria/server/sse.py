"""A turn's answer as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from noria.server.connection import cut, while_connected
from noria.server.encoders.reply import Encoder
from noria.server.errors import ApiError, as_api_error
from noria.server.turn import Turn

logger = logging.getLogger("noria.server")

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # tells nginx to pass on what it gets
}


class EventStream(Response):
    """Writes what the encoder makes of the turn's events, all that is there in one go; ends the turn with itself.

    keep_alive_s: after this long without anything to say, the encoder's keep_alive goes out; 0: never.
    max_unread: tokens a choice that may wait while the client does not read; beyond that it is dropped.
    """

    def __init__(self, turn: Turn, encoder: Encoder, keep_alive_s: float, max_unread: int) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._turn = turn
        self._encoder = encoder
        self._keep_alive_s = keep_alive_s
        self._max_unread = max_unread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._turn.bound(self._max_unread, lambda: self._drop(scope))
        try:
            await while_connected(receive, self._write(send))
        except ClientDisconnect:
            logger.debug("client of %s went away", self._turn.request.request_id)
        finally:
            self._turn.close()

    def _drop(self, scope: Scope) -> None:
        request_id, client = self._turn.request.request_id, scope.get("client")
        logger.warning("client %s of %s reads too slowly; its stream is dropped", client, request_id)
        cut(scope)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            await self._write_events(send)
            last = self._encoder.end()
        except Exception as error:
            if not isinstance(error, ApiError):
                logger.exception("stream %s failed", self._turn.request.request_id)
            last = self._encoder.fail(as_api_error(error))
        await self._send_part(send, last, more=False)

    async def _write_events(self, send: Send) -> None:
        silence = _Silence(self._keep_alive_s, self._turn.nudge)
        try:
            await self._send_part(send, self._encoder.begin())
            while not self._turn.is_done:
                said = await self._write_batch(send)
                if not said and silence.is_over_long:
                    await self._send_part(send, self._encoder.keep_alive)
                if said or silence.is_over_long:
                    silence.broken()
        finally:
            silence.end()

    async def _write_batch(self, send: Send) -> bool:
        """Write everything that is there; False if it says nothing. What precedes a failure is written too."""
        frames: list[bytes] = []
        try:
            for event in await self._turn.events():
                frames.append(self._encoder.encode(event))
        finally:
            content = b"".join(frames)
            if content:
                await self._send_part(send, content)
        return bool(content)

    async def _send_part(self, send: Send, body: bytes, more: bool = True) -> None:
        with self._turn.held():
            await send({"type": "http.response.body", "body": body, "more_body": more})


class _Silence:
    """Nudges when nothing has been said for `limit_s`; costs one timer, not one a token."""

    def __init__(self, limit_s: float, nudge: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._nudge = nudge
        self._loop = asyncio.get_running_loop()
        self._since_s = self._loop.time()
        self._timer = self._loop.call_later(limit_s, self._look) if limit_s > 0 else None

    @property
    def is_over_long(self) -> bool:
        return self._timer is not None and self._loop.time() - self._since_s >= self._limit_s

    def broken(self) -> None:
        self._since_s = self._loop.time()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        left_s = self._since_s + self._limit_s - self._loop.time()
        if left_s <= 0:
            self._nudge()
            left_s = self._limit_s
        self._timer = self._loop.call_later(left_s, self._look)
