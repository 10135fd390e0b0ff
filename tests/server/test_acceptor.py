"""Under overload newcomers are looked at many at a time, and those that are refused get no protocol; nobody is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from uvicorn.server import ServerState

from noria.config.engine import QueueConfig
from noria.server.acceptor import Acceptor, AcceptorConfig
from noria.server.limits import Limits
from support_intake import FULL, crowd
from support_server import FakeEngine, app_for

ROOM = crowd(num_queued=1, num_queued_tokens=10, num_live=9, limits=QueueConfig(64, 10_000))
BODY = b'{"prompt": "turn", "max_tokens": 3}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n"
CLOSE = b"Connection: close\r\n"
POST = HEAD % (len(BODY), CLOSE) + BODY


class Counted(asyncio.Protocol):
    """Says hello at once, and gives back what it gets."""

    made: list[Counted]

    def __init__(self, waited_since_s: Any) -> None:
        self.waited_since_s = waited_since_s

    def connection_made(self, transport: Any) -> None:
        self.made.append(self)
        self._transport = transport
        transport.write(b"hello ")

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
        self._transport.close()


class Watched(Acceptor):
    """Calls after_look after each look at newcomers."""

    after_look: Callable[[], None] = staticmethod(lambda: None)

    def _look(self) -> None:
        super()._look()
        self.after_look()


class Scene:
    """An acceptor in front of counted protocols, and clients who come to it. The engine is full.

    is_refusing: as if there had been a refusal just now.
    """

    def __init__(self, is_refusing: bool = True, is_logged: bool = False) -> None:
        self.engine = FakeEngine(is_auto=False)
        self.engine.crowd_inside = FULL
        self.doorway = app_for(self.engine).state.switchboard.doorway
        self.is_refusing = is_refusing
        self.doorway.is_refusing = lambda: self.is_refusing
        self.made: list[Counted] = []
        kind = type("Made", (Counted,), {"made": self.made})
        self.listener = socket.create_server(("127.0.0.1", 0))
        config = AcceptorConfig(kind, None, self.doorway, Limits(), ServerState(), is_logged)
        self.acceptor = Watched(self.listener, config)
        self.acceptor.open()

    async def ask(self, *parts: bytes) -> bytes:
        """What comes back on one connection until the server closes it."""
        reader, writer = await asyncio.open_connection(*self.listener.getsockname())
        for part in parts:
            writer.write(part)
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer


async def all_of(client: socket.socket) -> bytes:
    """What comes until the server closes it."""
    client.setblocking(False)
    loop, answer = asyncio.get_running_loop(), b""
    with client:
        while piece := await asyncio.wait_for(loop.sock_recv(client, 1000), 60):
            answer += piece
    return answer


def run(scenario: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def play() -> None:
        scene = Scene(**options)
        try:
            await scenario(scene)
        finally:
            scene.acceptor.close()
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
        def count_it() -> None:
            scene.engine.crowd_inside = FULL

        scene.engine.crowd_inside = ROOM
        scene.acceptor.after_look = count_it
        clients = [socket.create_connection(scene.listener.getsockname()) for _ in range(3)]
        for client in clients:
            client.sendall(POST)
            client.setblocking(False)
        loop = asyncio.get_running_loop()
        answers = [await asyncio.wait_for(loop.sock_recv(client, 1000), 20) for client in clients]
        assert [answer.startswith(b"HTTP/1.1 503 ") for answer in answers] == [False, True, True]
        assert len(scene.made) == 1
        for client in clients:
            client.close()

    run(scenario)


def test_what_is_not_judged_waits_for_nobody_who_is() -> None:
    async def scenario(scene: Scene) -> None:
        scene.engine.crowd_inside = None  # nobody is judged
        assert await asyncio.gather(*(scene.ask(POST) for _ in range(5))) == [b"hello " + POST] * 5
        scene.engine.crowd_inside = ROOM
        held = [asyncio.ensure_future(scene.ask(POST)) for _ in range(40)]
        assert await scene.ask(b"GET /health HTTP/1.1\r\n\r\n") == b"hello GET /health HTTP/1.1\r\n\r\n"
        assert await asyncio.gather(*held) == [b"hello " + POST] * 40

    run(scenario)


def test_of_those_who_pass_one_is_let_in_at_a_look_and_nobody_waits_for_more_than_three() -> None:
    async def scenario(scene: Scene) -> None:
        scene.engine.crowd_inside = ROOM
        clients = [socket.create_connection(scene.listener.getsockname()) for _ in range(10)]
        for client in clients:
            client.sendall(POST)
        numbers: list[int] = []
        scene.acceptor.after_look = lambda: numbers.append(len(scene.acceptor._held))
        while len(scene.made) < 10:
            await asyncio.sleep(0.001)
        assert numbers[:4] == [9, 8, 7, 0]
        for client in clients:
            client.close()

    run(scenario)


def test_a_protocol_is_told_since_when_a_whole_request_waits_for_it() -> None:
    async def scenario(scene: Scene) -> None:
        scene.engine.crowd_inside = ROOM
        before_s = time.monotonic()
        clients = [socket.create_connection(scene.listener.getsockname()) for _ in range(3)]
        for client in clients:
            client.sendall(POST)
        await asyncio.gather(*map(all_of, clients))
        assert [before_s <= made.waited_since_s <= time.monotonic() for made in scene.made] == [True] * 3
        # They were accepted in this order, whenever each was let in.
        assert sorted(made.waited_since_s for made in scene.made) == [
            made.waited_since_s for made in scene.made
        ]
        await scene.ask(POST[:-5])
        assert scene.made[-1].waited_since_s is None

    run(scenario)


def test_a_fault_over_one_connection_keeps_nobody_else_out() -> None:
    async def scenario(scene: Scene) -> None:
        judge, faults = scene.doorway.judge, iter((ValueError("as made"),))

        def faulty(whole: Any, arrived_s: float) -> Any:
            for fault in faults:
                raise fault
            return judge(whole, arrived_s)

        scene.doorway.judge = faulty
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        with socket.create_connection(scene.listener.getsockname()) as client:
            client.sendall(POST)
            assert (await scene.ask(POST)).startswith(b"HTTP/1.1 503 ")

    run(scenario)


def test_who_is_held_when_the_server_ends_is_let_in() -> None:
    async def scenario(scene: Scene) -> None:
        scene.engine.crowd_inside = ROOM
        clients = [socket.create_connection(scene.listener.getsockname()) for _ in range(5)]
        for client in clients:
            client.sendall(POST)
        numbers: list[int] = []

        def end() -> None:
            numbers.append(len(scene.acceptor._held))
            scene.acceptor.close()

        scene.acceptor.after_look = end
        assert [await all_of(client) for client in clients] == [b"hello " + POST] * 5
        assert numbers == [4]

    run(scenario)


def test_as_long_as_nothing_is_refused_everybody_is_let_in_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.ask(POST) == b"hello " + POST
        assert len(scene.made) == 1

    run(scenario, is_refusing=False)


def test_refusals_that_end_are_followed_by_letting_in() -> None:
    async def scenario(scene: Scene) -> None:
        assert (await scene.ask(POST)).startswith(b"HTTP/1.1 503 ")
        scene.is_refusing = False
        assert await scene.ask(POST) == b"hello " + POST
        assert await scene.ask(POST) == b"hello " + POST

    run(scenario)


def test_a_client_that_has_left_is_no_fault() -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            with socket.create_connection(scene.listener.getsockname()) as client:
                client.sendall(POST)
                # Gone without a goodbye: what is written to it fails.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
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
    monkeypatch.setattr("noria.server.acceptor._BACK_OFF_S", 0.01)

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
        scene.acceptor._listener = poor  # type: ignore[assignment]
        assert await scene.ask(POST) == b"hello " + POST
        assert poor.num_failures == 3
        assert "Too many open files" in caplog.text

    run(scenario, is_refusing=False)
