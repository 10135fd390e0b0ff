"""A small HTTP/1.1 client over asyncio's protocols: it notes when which bytes came, and leaves reading them for later.

The load generator shares a machine with the server that it measures, and a send that waits for a client's own work is
an error of the measurement, so everything here is as little as possible. Connections are kept and used again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

from noria.config.errors import ConfigError

# A server closes what has been idle for some seconds; one that does so while we send would look like an error of its.
_IDLE_LIMIT_S = 3.0


@dataclass(slots=True)
class Exchange:
    """A request and what came of it. Instants: time.perf_counter(). status 0: no answer came.

    arrived: the body, as it came. error: what ended it early, or nothing.
    """

    message: bytes
    sent_s: float = 0.0
    status: int = 0
    arrived: list[tuple[float, bytes]] = field(default_factory=list)
    end_s: float = 0.0
    error: str = ""
    is_done: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.arrived)


OnDone = Callable[[Exchange], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """A server. prefix: of every path."""

    host: str
    port: int
    is_tls: bool
    prefix: str

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_origin(url: str) -> Origin:
    """Of http://host:port, with or without a path; a trailing /v1 is the API's own. Raises ConfigError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError(f"base_url {url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"base_url {url!r} must be http://HOST:PORT or https://HOST:PORT")
    return Origin(parts.hostname, port, parts.scheme == "https", parts.path.rstrip("/").removesuffix("/v1"))


class HttpClient:
    """Sends to one origin. headers: lines of every request. Lives on an event loop."""

    def __init__(self, origin: Origin, headers: dict[str, str] | None = None) -> None:
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._tls = ssl.create_default_context() if origin.is_tls else None
        lines = {"Host": origin.address, "Content-Type": "application/json", **(headers or {})}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()
        self._address: tuple[str, int] | None = None

    def message(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A whole request."""
        start = f"{method} {self._origin.prefix}{path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
        return b"".join((start.encode(), self._head, b"\r\n", body))

    def send(self, message: bytes, on_done: OnDone) -> Exchange:
        """Begin a request; `on_done` is called once, when its answer has ended or nothing can come any more."""
        exchange = Exchange(message)
        now_s = time.perf_counter()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(now_s):
                connection.begin(exchange, on_done)
                return exchange
            connection.close()
        task = self._loop.create_task(self._connect(exchange, on_done))
        task.add_done_callback(lambda done: _failed(done, exchange, on_done))
        return exchange

    async def fetch(self, method: str, path: str, body: bytes = b"", limit_s: float = 30.0) -> Exchange:
        """One small request, waited for. Never raises: see status and error."""
        done: asyncio.Future[None] = self._loop.create_future()

        def ended(_: Exchange) -> None:
            if not done.done():
                done.set_result(None)

        exchange = self.send(self.message(method, path, body), ended)
        try:
            await asyncio.wait_for(done, limit_s)
        except asyncio.TimeoutError:
            self.abandon(exchange, f"no answer within {limit_s:g} s")
        return exchange

    def abandon(self, exchange: Exchange, why: str) -> None:
        """End a request early, by closing its connection."""
        exchange.error = exchange.error or why
        for connection in list(self._open):
            if connection.exchange is exchange:
                connection.close()

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()

    async def _connect(self, exchange: Exchange, on_done: OnDone) -> None:
        host, port = await self._resolved()
        server_name = self._origin.host if self._tls else None
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self._release, self._open),
            host,
            port,
            ssl=self._tls,
            server_hostname=server_name,
        )
        if exchange.error:  # it was abandoned while we connected
            connection.close()
            raise ConnectionError(exchange.error)
        connection.begin(exchange, on_done)

    async def _resolved(self) -> tuple[str, int]:
        # Once: a name server's delay belongs into no figure.
        if self._address is None:
            found = await self._loop.getaddrinfo(
                self._origin.host, self._origin.port, type=socket.SOCK_STREAM
            )
            found.sort(key=lambda entry: entry[0] is not socket.AF_INET)
            self._address = (str(found[0][4][0]), int(found[0][4][1]))
        return self._address

    def _release(self, connection: _Connection) -> None:
        self._idle.append(connection)


class _Connection(asyncio.Protocol):
    """One connection; httptools calls its on_* methods."""

    def __init__(self, release: Callable[[_Connection], None], open_ones: set[_Connection]) -> None:
        self.exchange: Exchange | None = None
        self._release = release
        self._open_ones = open_ones
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._on_done: OnDone | None = None
        self._now_s = 0.0
        self._idle_since_s = 0.0

    def is_usable(self, now_s: float) -> bool:
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and now_s - self._idle_since_s < _IDLE_LIMIT_S

    def begin(self, exchange: Exchange, on_done: OnDone) -> None:
        assert self._transport is not None
        self.exchange = exchange
        self._on_done = on_done
        self._parser = httptools.HttpResponseParser(self)
        exchange.sent_s = time.perf_counter()
        self._transport.write(exchange.message)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_ones.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._open_ones.discard(self)
        if self.exchange is not None:
            self._now_s = time.perf_counter()
            self._end(f"the connection was lost: {error or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        self._now_s = time.perf_counter()
        if self.exchange is None or self._parser is None:
            self.close()  # nothing was asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"not HTTP: {error}")
            self.close()

    def on_body(self, body: bytes) -> None:
        if self.exchange is not None:
            self.exchange.arrived.append((self._now_s, body))

    def on_message_complete(self) -> None:
        assert self._parser is not None
        keeps = self._parser.should_keep_alive()
        self._end("")
        if keeps:
            self._idle_since_s = self._now_s
            self._release(self)
        else:
            self.close()

    def _end(self, error: str) -> None:
        exchange, on_done = self.exchange, self._on_done
        assert exchange is not None and on_done is not None and self._parser is not None
        exchange.status = self._parser.get_status_code() or 0
        exchange.error = exchange.error or error
        exchange.end_s = self._now_s
        exchange.is_done = True
        self.exchange = None
        # Later: reading an answer takes longer than noting the bytes of the others that have come meanwhile.
        asyncio.get_running_loop().call_soon(on_done, exchange)


def _failed(task: asyncio.Task[None], exchange: Exchange, on_done: OnDone) -> None:
    error = None if task.cancelled() else task.exception()
    if error is None or exchange.is_done:
        return
    exchange.error = exchange.error or f"no connection: {error}"
    exchange.end_s = time.perf_counter()
    exchange.is_done = True
    on_done(exchange)
