"""Under overload newcomers are looked at many at a time, and those that are refused get no protocol; nobody is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.server import ServerState

from noria.server.limits import Limits
from noria.server.porch import House, Porch
from support_intake import FULL
from support_server import FakeEngine, app_for

BODY = b'{"prompt": "turn", "max_tokens": 3}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n"
CLOSE = b"Connection: close\r\n"
POST = HEAD % (len(BODY), CLOSE) + BODY


class Counted(asyncio.Protocol):
    """Says hello at once, and gives back what it gets."""

    made: list[Counted]

    def connection_made(self, transport: Any) -> None:
        self.made.append(self)
        self._transport = transport
        transport.write(b"hello ")

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


class Scene:
    """A porch in front of counted protocols, and clients who come to it. The engine is full."""

    def __init__(self, is_crowded: bool = True, is_logged: bool = False) -> None:
        self.engine = FakeEngine(is_auto=False)
        self.engine.crowd_inside = FULL
        self.doorway = app_for(self.engine).state.switchboard.doorway
        if is_crowded:
            self.doorway.refused_s = math.inf  # and stays so
        self.made: list[Counted] = []
        kind = type("Made", (Counted,), {"made": self.made})
        self.listener = socket.create_server(("127.0.0.1", 0))
        house = House(kind, None, self.doorway, Limits(), ServerState(), is_logged)
        self.porch = Porch(self.listener, house)
        self.porch.open()

    async def ask(self, *parts: bytes) -> bytes:
        """What comes back on one connection until the server closes it."""
        reader, writer = await asyncio.open_connection(*self.listener.getsockname())
        for part in parts:
            writer.write(part)
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer


def run(scenario: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def play() -> None:
        scene = Scene(**options)
        try:
            await scenario(scene)
        finally:
            scene.porch.close()
            scene.listener.close()

    asyncio.run(play())


def test_what_is_refused_gets_its_answer_and_no_protocol() -> None:
    async def scenario(scene: Scene) -> None:
        answers = await asyncio.gather(*(scene.ask(POST) for _ in range(100)))
        for answer in answers:
            head, body = answer.split(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nconnection: close\r\n" in head
            assert b"\r\ncontent-length: %d\r\n" % len(body) in head
        assert scene.made == []

    run(scenario)


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD % (len(BODY), b"") + BODY,),  # the connection is to be kept
        (b"GET /health HTTP/1.1\r\n\r\n",),
        (POST[:-5],),
        (POST + POST,),
        (b"?",),
    ],
)
def test_all_else_is_for_a_protocol_with_every_byte_that_it_sent(parts: tuple[bytes, ...]) -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.ask(*parts) == b"hello " + b"".join(parts)
        assert len(scene.made) == 1

    run(scenario)


def test_one_that_says_nothing_yet_is_let_in_and_others_do_not_wait_for_it() -> None:
    async def scenario(scene: Scene) -> None:
        reader, writer = await asyncio.open_connection(*scene.listener.getsockname())
        assert await asyncio.wait_for(reader.readexactly(6), 20) == b"hello "
        assert (await scene.ask(POST)).startswith(b"HTTP/1.1 503 ")
        writer.write(b"late")
        assert await asyncio.wait_for(reader.read(), 20) == b"late"
        writer.close()

    run(scenario)


def test_whoever_comes_with_one_that_is_let_in_is_judged_once_that_one_is_counted() -> None:
    async def scenario(scene: Scene) -> None:
        scene.engine.crowd_inside = None
        clients = [socket.create_connection(scene.listener.getsockname()) for _ in range(3)]
        for client in clients:
            client.sendall(POST)
            client.setblocking(False)
        while not scene.made:
            await asyncio.sleep(0)
        scene.engine.crowd_inside = FULL
        loop = asyncio.get_running_loop()
        answers = [await asyncio.wait_for(loop.sock_recv(client, 1000), 20) for client in clients]
        assert [answer.startswith(b"HTTP/1.1 503 ") for answer in answers] == [False, True, True]
        assert len(scene.made) == 1
        for client in clients:
            client.close()

    run(scenario)


def test_as_long_as_nothing_is_refused_everybody_is_let_in_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.ask(POST) == b"hello " + POST
        assert len(scene.made) == 1

    run(scenario, is_crowded=False)


def test_refusals_that_end_are_followed_by_letting_in() -> None:
    async def scenario(scene: Scene) -> None:
        assert (await scene.ask(POST)).startswith(b"HTTP/1.1 503 ")
        scene.doorway.refused_s = -math.inf
        assert await scene.ask(POST) == b"hello " + POST
        assert await scene.ask(POST) == b"hello " + POST

    run(scenario)


def test_a_client_that_has_left_is_no_fault() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            with socket.create_connection(scene.listener.getsockname()) as client:
                client.sendall(POST)
        assert (await scene.ask(POST)).startswith(b"HTTP/1.1 503 ")

    run(scenario)


def test_refusals_are_told_in_the_access_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(scene: Scene) -> None:
        with caplog.at_level(logging.INFO, "uvicorn.access"):
            await scene.ask(POST)
        scene.doorway.lines.flush()

    logging.getLogger("uvicorn.access").addHandler(caplog.handler)
    try:
        run(scenario, is_logged=True)
    finally:
        logging.getLogger("uvicorn.access").removeHandler(caplog.handler)
    assert any('"POST /v1/completions HTTP/1.1" 503' in line.getMessage() for line in caplog.records)


def test_where_the_system_gives_no_connection_it_is_asked_again_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noria.server.porch._REST_S", 0.01)

    class Poor:
        """A listener whose process has too many files open, for a while."""

        def __init__(self, inner: socket.socket) -> None:
            self._inner = inner
            self.num_failures = 0

        def accept(self) -> Any:
            if self.num_failures < 3:
                self.num_failures += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return self._inner.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    async def scenario(scene: Scene) -> None:
        poor = Poor(scene.listener)
        scene.porch._listener = poor  # type: ignore[assignment]
        assert await scene.ask(POST) == b"hello " + POST
        assert poor.num_failures == 3
        assert "Too many open files" in caplog.text

    run(scenario, is_crowded=False)
