"""A refusal by the protocol leaves its connection in order for what comes behind it; what it holds is never lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from noria.server.limits import Limits
from support_intake import FULL
from support_protocol import Connection, turns
from support_server import FakeEngine, app_for

BODY = b'{"prompt": "turn", "max_tokens": 3}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
POST = HEAD % len(BODY) + BODY
GET = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
PATH = "/v1/completions"


def full_app(**options: Any) -> Any:
    engine = FakeEngine(is_auto=False)
    engine.crowd_inside = FULL
    return app_for(engine, **options)


class Slow:
    """An app that answers when it is told to."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.go = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.num_asked += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await self.go.wait()
        await send({"type": "http.response.body", "body": b"done"})


@pytest.mark.parametrize("num_refused", [1, 2])
def test_what_is_pipelined_behind_refusals_is_answered_however_the_bytes_are_cut(num_refused: int) -> None:
    sent = POST * num_refused + GET
    idle = {
        number * len(POST) for number in range(1, num_refused + 1)
    }  # where a wait is one of nothing asked

    async def scenario() -> None:
        app = full_app()
        for cut in range(len(sent) + 1):
            slow = Slow()
            connection = Connection(app, keep_alive_s=0, inner=slow)
            connection.receive(sent[:cut])
            if cut not in idle:
                await turns()
            assert not connection.wire.is_closing(), cut
            connection.receive(sent[cut:])
            await connection.until(lambda slow=slow: slow.num_asked)
            await turns()
            assert not connection.wire.is_closing(), cut
            slow.go.set()
            await connection.until(connection.wire.is_closing)  # idle at last
            assert connection.wire.written.count(b"HTTP/1.1 503 ") == num_refused, cut
            assert connection.wire.written.endswith(b"done"), cut
            connection.lose()

    asyncio.run(scenario())


def test_a_connection_is_idle_behind_a_refusal() -> None:
    async def scenario() -> None:
        connection = Connection(full_app(), keep_alive_s=0)
        connection.receive(POST)
        await connection.until(connection.wire.is_closing)
        connection.lose()

    asyncio.run(scenario())


def test_what_has_begun_behind_a_refusal_gets_the_time_of_a_head() -> None:
    async def scenario() -> None:
        limits = replace(Limits(), head_timeout_s=0.0)
        connection = Connection(full_app(limits=limits), keep_alive_s=75)
        connection.receive(POST + GET[:20])
        await connection.until(connection.wire.is_closing)
        refused, timed_out = connection.wire.written.split(b"HTTP/1.1 ")[1:]
        assert refused.startswith(b"503 ")
        assert timed_out.startswith(b"408 ")
        connection.lose()

    asyncio.run(scenario())


async def with_app(app: Any, scenario: Callable[[], Awaitable[None]]) -> None:
    async with app.router.lifespan_context(app):
        await scenario()


@pytest.mark.parametrize("cut", [len(POST) - len(BODY), len(POST) - 1])
def test_a_request_held_while_draining_begins_is_inside_until_it_is_answered(cut: int) -> None:
    engine = FakeEngine()
    app = app_for(engine)
    gate = app.state.switchboard.gate

    async def scenario() -> None:
        connection = Connection(app)
        connection.receive(POST[:cut])
        assert gate.num_inside == 1
        gate.drain()
        is_idle = asyncio.ensure_future(gate.wait_until_idle(20))
        await turns()
        connection.receive(POST[cut:])
        assert await is_idle
        assert connection.wire.written.startswith(b"HTTP/1.1 200 ")
        connection.receive(POST)
        await connection.until(lambda: b"HTTP/1.1 503 " in connection.wire.written)
        assert b"shutting down" in connection.wire.written
        assert gate.num_inside == 0
        connection.lose()

    asyncio.run(with_app(app, scenario))
    engine.shutdown()


def test_a_request_on_its_way_to_the_app_is_inside_when_draining_begins() -> None:
    engine = FakeEngine()
    app = app_for(engine)
    gate = app.state.switchboard.gate

    async def scenario() -> None:
        connection = Connection(app)
        connection.receive(POST)
        gate.drain()
        assert await gate.wait_until_idle(20)
        assert connection.wire.written.startswith(b"HTTP/1.1 200 ")
        connection.lose()

    asyncio.run(with_app(app, scenario))
    engine.shutdown()


def test_the_time_of_a_request_that_waited_for_its_protocol_has_run_since_it_came() -> None:
    engine = FakeEngine()
    app = app_for(engine)

    async def scenario() -> None:
        connection = Connection(app)
        connection.protocol.waited_since_s = time.monotonic() - 900
        connection.receive(POST.replace(b"Host: x\r\n", b"Host: x\r\nX-Request-Timeout: 2000\r\n"))
        await connection.until(lambda: connection.wire.written.count(b"HTTP/1.1 200 ") == 1)
        connection.receive(POST.replace(b"Host: x\r\n", b"Host: x\r\nX-Request-Timeout: 2000\r\n"))
        await connection.until(lambda: connection.wire.written.count(b"HTTP/1.1 200 ") == 2)
        waited, fresh = (request.timeout_s for request in engine.submitted)
        assert waited is not None and 0 < waited <= 1100
        assert fresh is not None and 1100 < fresh <= 2000
        connection.lose()

    asyncio.run(with_app(app, scenario))
    engine.shutdown()


def test_a_request_that_waited_for_longer_than_its_time_is_told_so() -> None:
    engine = FakeEngine()
    app = app_for(engine)

    async def scenario() -> None:
        connection = Connection(app)
        connection.protocol.waited_since_s = time.monotonic() - 900
        connection.receive(POST.replace(b"Host: x\r\n", b"Host: x\r\nX-Request-Timeout: 800\r\n"))
        await connection.until(lambda: connection.wire.written)
        assert connection.wire.written.startswith(b"HTTP/1.1 504 ")
        assert engine.submitted == []
        connection.lose()

    asyncio.run(with_app(app, scenario))
    engine.shutdown()


def num_measured(app: Any, status: str) -> float:
    metrics = app.state.switchboard.doorway._metrics
    (requests,) = [one for one in metrics.collect() if one.name == "http_requests"]
    return sum(
        one.value
        for one in requests.samples
        if one.labels == {"method": "POST", "handler": PATH, "status": status}
    )


@pytest.mark.parametrize("cut", [len(POST) - len(BODY), len(POST) - 1])
@pytest.mark.parametrize("how", ["leaves", "is too slow"])
def test_a_request_that_ends_while_it_is_held_is_measured_once_and_is_inside_no_more(
    cut: int, how: str
) -> None:
    limits = replace(Limits(), body_timeout_s=75.0 if how == "leaves" else 0.0)
    app = full_app(limits=limits)
    gate = app.state.switchboard.gate

    async def scenario() -> None:
        connection = Connection(app)
        connection.receive(POST[:cut])
        assert gate.num_inside == 1
        if how == "is too slow":
            await connection.until(connection.wire.is_closing)
            assert connection.wire.written.startswith(b"HTTP/1.1 408 ")
            assert gate.num_inside == 0
        connection.lose()
        assert gate.num_inside == 0
        assert num_measured(app, "4xx") == 1
        assert num_measured(app, "5xx") == 0

    asyncio.run(scenario())
