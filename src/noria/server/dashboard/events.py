"""GET /dashboard/events: the feed as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from noria.engine.messages import EngineStats
from noria.server.connection import while_connected
from noria.server.dashboard.feed import Feed
from noria.server.dashboard.message import encode
from noria.server.errors import unavailable
from noria.server.gate import Gate

MAX_WATCHERS = 8
_EVERY_S = 0.2
_KEEP_ALIVE_S = 5.0
_STALL_S = 5.0  # a reader that takes nothing for so long is given up
_RETRY_S = 5

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


class Audience:
    """Those who watch a feed. Nothing is queued for anybody: who is slow gets, next time, all that happened since
    in one message, or a fresh snapshot when that is too much.

    about: what a page has to know of the server and does not change.
    """

    def __init__(
        self, feed: Feed, stats: Callable[[], EngineStats], gate: Gate, about: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.num_watchers = 0
        self._feed = feed
        self._stats = stats
        self._gate = gate
        self._about = about

    async def watch(self, write: Callable[[bytes], Any]) -> None:
        """Write what happens, several times a second, until the server drains."""
        self.num_watchers += 1
        try:
            await self._watch(write)
        finally:
            self.num_watchers -= 1

    async def _watch(self, write: Callable[[bytes], Any]) -> None:
        stats = self._stats()
        self._feed.heed(stats)
        news = self._feed.latest()
        await write(encode(news, stats, self._about()))
        num_silent = 0
        while not self._gate.is_draining:
            await asyncio.sleep(_EVERY_S)
            num_silent += 1
            seen, told = news, stats
            stats = self._stats()
            self._feed.heed(stats)
            news = self._feed.since(seen)
            if news.last != seen.last or stats != told:
                await write(encode(news, stats, self._about()))
                num_silent = 0
            elif num_silent * _EVERY_S >= _KEEP_ALIVE_S:
                await write(b": keep-alive\n\n")
                num_silent = 0


class WatchResponse(Response):
    """A stream to one page; refused with 503 when MAX_WATCHERS are there already."""

    def __init__(self, audience: Audience) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._audience = audience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._audience.num_watchers >= MAX_WATCHERS:
            error = unavailable(f"{MAX_WATCHERS} dashboards are open already; close one.", _RETRY_S)
            await error.response(scope)(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await while_connected(receive, self._write(send))

    async def _write(self, send: Send) -> None:
        async def write(content: bytes) -> None:
            message = {"type": "http.response.body", "body": content, "more_body": True}
            try:
                await asyncio.wait_for(send(message), _STALL_S)
            except asyncio.TimeoutError:
                raise ClientDisconnect from None

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._audience.watch(write)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
