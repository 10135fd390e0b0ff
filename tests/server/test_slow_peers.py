"""Clients that do not read, or do not send, are waited for up to a limit; the others never notice."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from noria.config.parse import from_mapping
from noria.config.serving import ServerOptions
from noria.core.outputs import Delta
from noria.server.bridge import Inbox
from noria.server.sockets import bind, release
from support_processes import until
from support_protocol import Connection, HandClock
from support_server import FakeEngine, Server, app_for, says, served_model, serving

ENDLESS = says("again and again ", ends=False)
LONG_MODEL = served_model(max_model_len=100_000)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@contextmanager
def serving_on_path(
    path: Path, engine: FakeEngine, model: Any = LONG_MODEL, **options: Any
) -> Iterator[Server]:
    """On a Unix socket, which holds some 200 KiB that are not read and no more."""
    options["uds"] = str(path / "noria.sock")
    bound = bind(from_mapping(ServerOptions, {"uds": options["uds"]}))
    with serving(engine, model=model, bound=bound, **options) as server:
        yield server
    release(bound, from_mapping(ServerOptions, {"uds": options["uds"]}))


def connect(server: Server, content: bytes = b"") -> socket.socket:
    address = server._socket.getsockname()
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    client = socket.socket(family, socket.SOCK_STREAM)
    client.settimeout(60)
    client.connect(address)
    client.sendall(content)
    return client


def request(**fields: Any) -> bytes:
    body = json.dumps({"prompt": "a", "ignore_eos": True, **fields}).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def read_all(client: socket.socket) -> bytes:
    """Until the connection ends, however it does."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


# Readers


def test_a_stream_that_is_not_read_is_dropped_at_its_limit_and_no_other_notices(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FakeEngine(ENDLESS, is_auto=False)
    num_tokens = 400
    asked = {"prompt": "b", "max_tokens": num_tokens, "stream": True, "return_token_ids": True}
    with (
        caplog.at_level(logging.WARNING, "noria.server"),
        serving_on_path(tmp_path, engine, max_unread_tokens=10) as server,
        closing(connect(server, request(n=64, max_tokens=1000, stream=True, return_token_ids=True))) as slow,
        server.client.stream("POST", "/v1/completions", json=asked) as good,
    ):
        engine.wait_for(lambda: len(engine.submitted) == 65)
        lines = (line for line in good.iter_lines() if line)
        for _ in range(num_tokens):
            engine.step()
            assert '"token_ids":[' in next(lines)
        assert list(lines) == ["data: [DONE]"]
        assert sorted(engine.cancelled) == sorted(
            item.request_id for item in engine.submitted if item.params.max_tokens == 1000
        )
        assert b"[DONE]" not in read_all(slow)
        switchboard = server.app.state.switchboard
        until(lambda: (switchboard.bridge.num_open, switchboard.gate.num_inside) == (0, 0))
    assert sum("reads too slowly" in record.message for record in caplog.records) == 1


def test_a_reader_that_comes_back_before_its_limit_gets_everything(tmp_path: Path) -> None:
    engine = FakeEngine(ENDLESS)
    asked = request(max_tokens=4000, stream=True, return_token_ids=True)
    with (
        serving_on_path(tmp_path, engine, max_unread_tokens=4000) as server,
        closing(connect(server, asked)) as slow,
    ):
        engine.wait_for(lambda: engine.submitted and not engine.is_busy)
        said = b""
        while not said.endswith(b"0\r\n\r\n"):
            said += slow.recv(65536)
        assert said.count(b'"finish_reason":"length"') == 1
        assert said.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert engine.cancelled == []


def is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    stated = re.search(rb"content-length: (\d+)", head)
    return body.endswith(b"0\r\n\r\n") if stated is None else len(body) == int(stated[1])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_which_nothing_is_read_for_too_long_is_cut(tmp_path: Path, stream: bool) -> None:
    engine = FakeEngine(ENDLESS)
    asked = request(max_tokens=3000, stream=stream, logprobs=5, return_token_ids=True, n=4)
    options = {"max_unread_tokens": 100_000, "send_timeout": 0.3}
    with serving_on_path(tmp_path, engine, **options) as server, closing(connect(server, asked)) as slow:
        engine.wait_for(lambda: engine.submitted)
        server_state = server.server.server_state
        until(lambda: not server_state.connections)  # it goes without our reading or leaving
        assert not is_whole(read_all(slow))
        engine.wait_for(lambda: not engine.is_busy or engine.cancelled)


def test_the_bound_of_an_inbox_counts_tokens_that_nobody_has_taken() -> None:
    async def scenario() -> list[str]:
        inbox, told = Inbox(), []
        inbox.bound(10, lambda: told.append("too many"))
        inbox.put(Delta("a", tuple(range(100))))  # the loop was busy
        await inbox.take()
        inbox.is_held = True
        for _ in range(5):
            inbox.put(Delta("a", tuple(range(10))))
            await inbox.take()
        inbox.put(Delta("a", tuple(range(10))))
        assert told == []
        inbox.put(Delta("a", (1,)))
        return told

    assert asyncio.run(scenario()) == ["too many"]


# Senders, on connections and by a clock in the test's hand: whoever sends here is as quick as it means to be.

LIMIT_S = 0.3  # of a head, and of a body
JUST_S = 0.01


class Scene:
    """A server's connections. The engine steps when it is told to."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.engine = FakeEngine(ENDLESS, is_auto=False)
        limits = {"request_head_timeout": LIMIT_S, "request_body_timeout": LIMIT_S}
        self.app = app_for(self.engine, **limits)
        self.connections: list[Connection] = []

    def connect(self, content: bytes = b"") -> Connection:
        made = Connection(self.app)
        self.connections.append(made)
        if content:
            made.receive(content)
        return made

    async def ended(self, connection: Connection) -> bytes:
        """What was answered on one that is closed when the limit is over, and no earlier."""
        await self.clock.advance(LIMIT_S - JUST_S)
        assert not connection.wire.is_closing()
        for _ in range(5):  # some bytes of a body have earned as many ms
            await self.clock.advance(JUST_S)
        await connection.until(connection.wire.is_closing)
        return connection.wire.written


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def scene() -> None:
        made = Scene()
        await scenario(made)
        for connection in made.connections:
            connection.lose()

    asyncio.run(scene())


def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    async def scenario(scene: Scene) -> None:
        assert await scene.ended(scene.connect()) == b""

    play(scenario)


@pytest.mark.parametrize("start", [b"P", b"POST /v1/comp", HEAD, HEAD + b"Content-Length: 10"])
def test_half_a_head_is_answered_408(start: bytes) -> None:
    async def scenario(scene: Scene) -> None:
        head, _, body = (await scene.ended(scene.connect(start))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        error = json.loads(body)["error"]
        assert (error["type"], error["code"]) == ("RequestTimeoutError", 408)
        assert error["message"] == "The request's headers did not come within 0.3 s."

    play(scenario)


@pytest.mark.parametrize("path", [b"/v1/completions", b"/v1/messages", b"/nowhere", b"/health"])
def test_half_a_body_is_answered_and_the_connection_ends(path: bytes) -> None:
    start = HEAD.replace(b"/v1/completions", path) + b'Content-Length: 100\r\n\r\n{"prompt": '

    async def scenario(scene: Scene) -> None:
        connection = scene.connect(start)
        is_route = path.startswith(b"/v1")
        await connection.until(lambda: is_route or connection.wire.written)
        head, _, body = (await scene.ended(connection)).partition(b"\r\n\r\n")
        if is_route:
            assert head.startswith(b"HTTP/1.1 408 ")
            kind = "timeout_error" if path == b"/v1/messages" else "RequestTimeoutError"
            assert json.loads(body)["error"]["type"] == kind
        else:
            assert head.split()[1] in (b"404", b"405")
        await connection.until(lambda: scene.app.state.switchboard.gate.num_inside == 0)

    play(scenario)


@pytest.mark.parametrize(
    ("start", "drip"),
    [(b"", b"\r\n"), (HEAD + b"X-Long: ", b"X"), (HEAD + b"Content-Length: 1000\r\n\r\n", b"X")],
)
def test_drops_do_not_keep_a_connection(start: bytes, drip: bytes) -> None:
    async def scenario(scene: Scene) -> None:
        slow = scene.connect(start)
        for _ in range(9):
            slow.receive(drip)
            await scene.clock.advance(LIMIT_S / 10)
            assert not slow.wire.is_closing()
        for _ in range(5):  # of a body, what came has earned some 10 ms
            await scene.clock.advance(LIMIT_S / 10)
        await slow.until(slow.wire.is_closing)

    play(scenario)


def test_a_steady_flow_of_a_body_keeps_its_connection() -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 1, "metadata": {"a": "x" * 8000}}).encode()

    async def scenario(scene: Scene) -> None:
        steady = scene.connect(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        steady.receive(body[:-100])
        for _ in range(7):
            await scene.clock.advance(1.0)
        steady.receive(body[-100:])
        await steady.until(lambda: scene.engine.is_busy)
        scene.engine.step()
        await steady.until(lambda: steady.wire.written)
        assert steady.wire.written.startswith(b"HTTP/1.1 200 OK\r\n")

    play(scenario)


def test_streams_and_idle_connections_are_let_be() -> None:
    asked = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"

    async def scenario(scene: Scene) -> None:
        idle = scene.connect(asked)
        await idle.until(lambda: idle.wire.written)
        streaming = scene.connect(request(max_tokens=3, stream=True))
        await streaming.until(lambda: scene.engine.is_busy)
        streaming.receive(b"POST /v1/comp")  # of the next request, before this one is answered
        for _ in range(3):
            await scene.clock.advance(LIMIT_S)
        for _ in range(3):
            scene.engine.step()
        await streaming.until(lambda: streaming.wire.written.endswith(b"0\r\n\r\n"))
        assert b"data: [DONE]" in streaming.wire.written
        assert b"408" not in streaming.wire.written
        assert not idle.wire.is_closing()
        idle.receive(asked)
        await idle.until(lambda: idle.wire.written.count(b"HTTP/1.1 200 OK") == 2)

    play(scenario)
