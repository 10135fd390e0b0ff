"""The server's HTTP protocol on a connection that a test holds in its hands, with the app behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.server import ServerState

from noria.config.parse import from_mapping
from noria.config.serving import ServerOptions
from noria.server.lifecycle import make_server


class Wire(asyncio.Transport):
    """What is written stays here; nothing waits to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing, "something is written behind the end of the connection"
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class HandClock:
    """The running loop's time, which passes when the test says so."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._now_s = loop.time()
        loop.time = lambda: self._now_s  # type: ignore[method-assign]

    async def advance(self, seconds: float) -> None:
        """And let the loop do what is due."""
        self._now_s += seconds
        await turns()


class Connection:
    """On the running loop. keep_alive_s: for how long an idle one stays open."""

    def __init__(self, app: Any, keep_alive_s: int = 75, inner: Any = None) -> None:
        """inner: stands for the app, if it is not to be asked."""
        config = make_server(app, from_mapping(ServerOptions, {"uvicorn_log_level": "warning"})).config
        config.load()
        config.timeout_keep_alive = keep_alive_s
        if inner is not None:
            config.loaded_app = inner
        self.wire = Wire()
        self.protocol: Any = config.http_protocol_class(  # type: ignore[operator, call-arg]
            config=config, server_state=ServerState(), app_state={}
        )
        self.protocol.connection_made(self.wire)

    def receive(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def lose(self) -> None:
        self.protocol.connection_lost(None)

    async def until(self, condition: Callable[[], object]) -> None:
        async def turn() -> None:
            while not condition():
                await asyncio.sleep(0)

        await asyncio.wait_for(turn(), 60)


async def turns(count: int = 5) -> None:
    """Let the loop do what is due."""
    for _ in range(count):
        await asyncio.sleep(0)
