"""Clients that do not read, or do not send, are waited for up to a limit; the others never notice."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from noria.config.parse import from_mapping
from noria.config.serving import ServerOptions
from noria.core.outputs import Delta
from noria.server.bridge import Inbox
from noria.server.sockets import bind, release
from support_server import FakeEngine, Server, says, served_model, serving

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
    client.settimeout(20)
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


def until(condition: Callable[[], object]) -> None:
    """Fails where it takes 20 s."""
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s, "it never came to that"
        time.sleep(0.001)


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


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_which_nothing_is_read_for_too_long_is_cut(tmp_path: Path, stream: bool) -> None:
    engine = FakeEngine(ENDLESS)
    asked = request(max_tokens=3000, stream=stream, logprobs=5, return_token_ids=True, n=4)
    options = {"max_unread_tokens": 100_000, "send_timeout": 0.3}
    with serving_on_path(tmp_path, engine, **options) as server, closing(connect(server, asked)) as slow:
        engine.wait_for(lambda: engine.submitted)
        server_state = server.server.server_state
        until(lambda: not server_state.connections)  # it goes without our reading or leaving
        assert not read_all(slow).endswith(b"0\r\n\r\n" if stream else b"}")
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


# Senders


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    engine = FakeEngine(ENDLESS, is_auto=False)
    with serving(engine, request_head_timeout=0.3, request_body_timeout=0.3) as server:
        yield server


def let_time_pass(server: Server) -> None:
    """For longer than heads get."""
    for _ in range(2):
        with closing(connect(server)) as silent:
            assert silent.recv(1) == b""


def test_a_connection_that_says_nothing_is_closed_without_a_word(hasty: Server) -> None:
    with closing(connect(hasty)) as silent:
        assert read_all(silent) == b""


@pytest.mark.parametrize("start", [b"P", b"POST /v1/comp", HEAD, HEAD + b"Content-Length: 10"])
def test_half_a_head_is_answered_408(hasty: Server, start: bytes) -> None:
    with closing(connect(hasty, start)) as slow:
        head, _, body = read_all(slow).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("RequestTimeoutError", 408)
    assert error["message"] == "The request's headers did not come within 0.3 s."


@pytest.mark.parametrize("path", [b"/v1/completions", b"/v1/messages", b"/nowhere", b"/health"])
def test_half_a_body_is_answered_and_the_connection_ends(hasty: Server, path: bytes) -> None:
    start = HEAD.replace(b"/v1/completions", path) + b'Content-Length: 100\r\n\r\n{"prompt": '
    with closing(connect(hasty, start)) as slow:
        head, _, body = read_all(slow).partition(b"\r\n\r\n")
    if path.startswith(b"/v1"):
        assert head.startswith(b"HTTP/1.1 408 ")
        kind = "timeout_error" if path == b"/v1/messages" else "RequestTimeoutError"
        assert json.loads(body)["error"]["type"] == kind
    else:
        assert head.split()[1] in (b"404", b"405")
    until(lambda: hasty.app.state.switchboard.gate.num_inside == 0)


@pytest.mark.parametrize("drip", [b"\r\n", b"X"])
def test_drops_do_not_keep_a_connection(hasty: Server, drip: bytes) -> None:
    start = b"" if drip == b"\r\n" else HEAD + b"X-Long: "
    with closing(connect(hasty, start)) as slow:
        slow.settimeout(0.02)
        ends = False
        while not ends:
            try:
                slow.sendall(drip)
                ends = slow.recv(1) is not None
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                ends = True


def test_drops_of_a_body_do_not_keep_a_connection_and_a_steady_flow_does(hasty: Server) -> None:
    body = json.dumps({"prompt": "a", "max_tokens": 1, "metadata": {"a": "x" * 8000}}).encode()
    with closing(connect(hasty, HEAD + b"Content-Length: %d\r\n\r\n" % len(body))) as steady:
        middle = len(body) - 100
        steady.sendall(body[:middle])
        let_time_pass(hasty)
        steady.sendall(body[middle:])
        hasty.engine.wait_for(lambda: hasty.engine.is_busy)
        hasty.engine.step()
        assert steady.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


def test_streams_and_idle_connections_are_let_be(hasty: Server) -> None:
    engine = hasty.engine
    with (
        httpx.Client(base_url=hasty.url, timeout=20) as idle,
        closing(connect(hasty, request(max_tokens=3, stream=True))) as streaming,
    ):
        assert idle.get("/health").status_code == 200
        [kept] = idle._transport._pool.connections
        engine.wait_for(lambda: engine.is_busy)
        streaming.sendall(b"POST /v1/comp")  # of the next request, before this one is answered
        let_time_pass(hasty)
        for _ in range(3):
            engine.step()
        said = b""
        while not said.endswith(b"0\r\n\r\n"):
            said += streaming.recv(65536)
        assert b"data: [DONE]" in said
        assert b"408" not in said
        assert kept.is_available()
        assert not kept.has_expired()
        assert idle.get("/health").status_code == 200
