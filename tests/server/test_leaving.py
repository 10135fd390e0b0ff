"""Work ends with the client, wherever in its life the request is."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from typing import Any

import pytest

from support_server import CHAT, TEXT, AsgiCall, FakeEngine, Server, app_for, says, serving

LONG = says("again and again ", ends=False)
PATHS = {"/v1/chat/completions": CHAT, "/v1/completions": TEXT}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_steps", [0, 1, 5])
def test_a_client_that_leaves_cancels_its_sequences(path: str, stream: bool, num_steps: int) -> None:
    async def scenario(engine: FakeEngine) -> None:
        app = app_for(engine)
        call = AsgiCall(app, path, {**PATHS[path], "n": 2, "max_tokens": 30, "stream": stream})
        await call.until(lambda: len(engine.submitted) == 2)
        for _ in range(num_steps):
            engine.step()
        call.leave()
        await call.finished()
        assert sorted(engine.cancelled) == sorted(request.request_id for request in engine.submitted)
        switchboard = app.state.switchboard
        assert (switchboard.bridge.num_open, switchboard.gate.num_inside) == (0, 0)
        engine.step()
        assert not engine.is_busy

    asyncio.run(scenario(FakeEngine(LONG, is_auto=False)))


def test_a_finished_request_cancels_nothing() -> None:
    async def scenario(engine: FakeEngine) -> None:
        call = AsgiCall(app_for(engine), "/v1/completions", {**TEXT, "n": 3})
        await call.until(lambda: engine.submitted)
        while engine.is_busy:
            engine.step()
        await call.finished()
        assert call.status == 200
        assert engine.cancelled == []

    asyncio.run(scenario(FakeEngine(is_auto=False)))


def test_of_several_choices_only_those_that_still_run_are_cancelled() -> None:
    async def scenario(engine: FakeEngine) -> None:
        call = AsgiCall(app_for(engine), "/v1/completions", {**TEXT, "n": 2, "max_tokens": 40})
        await call.until(lambda: engine.submitted)
        for _ in range(10):
            engine.step()
        call.leave()
        await call.finished()
        assert [request_id[-2:] for request_id in engine.cancelled] == ["-1"]

    engine = FakeEngine(is_auto=False)
    engine.script = lambda r: (LONG if r.request_id.endswith("-1") else says("short"))(r)
    asyncio.run(scenario(engine))


def raw_post(server: Server, path: str, body: dict[str, Any]) -> socket.socket:
    content = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_is_noticed(stream: bool) -> None:
    engine = FakeEngine(LONG, is_auto=False)
    with serving(engine) as server:
        connection = raw_post(server, "/v1/completions", {**TEXT, "max_tokens": 50, "stream": stream})
        engine.wait_for(lambda: engine.submitted)
        connection.close()
        engine.wait_for(lambda: engine.cancelled)
        assert engine.cancelled == [engine.submitted[0].request_id]


def test_after_many_random_leavings_everything_is_clean() -> None:
    engine = FakeEngine(LONG)
    with serving(engine) as server:
        chance = random.Random(5)
        for _ in range(60):
            body = {**TEXT, "n": chance.randint(1, 3), "max_tokens": 50, "stream": chance.random() < 0.5}
            connection = raw_post(server, "/v1/completions", body)
            if chance.random() < 0.5:
                connection.recv(chance.randint(1, 400))
            connection.close()
        assert server.complete(max_tokens=3).json()["usage"]["completion_tokens"] == 3
        engine.wait_for(lambda: not engine.is_busy)
        gate = server.app.state.switchboard.gate
        assert server.get("/metrics").status_code == 200
        bridge = server.app.state.switchboard.bridge
        while gate.num_inside or bridge.num_open:
            server.get("/health")


def test_a_neighbours_stream_is_not_disturbed() -> None:
    async def scenario(engine: FakeEngine) -> bytes:
        app = app_for(engine)
        stays = AsgiCall(app, "/v1/completions", {**TEXT, "max_tokens": 20, "stream": True})
        leaves = AsgiCall(app, "/v1/completions", {**TEXT, "max_tokens": 20, "stream": True})
        await stays.until(lambda: len(engine.submitted) == 2)
        engine.step()
        leaves.leave()
        await leaves.finished()
        while engine.is_busy:
            engine.step()
        await stays.finished()
        return b"".join(stays.bodies)

    body = asyncio.run(scenario(FakeEngine(LONG, is_auto=False)))
    assert body.count(b'"text":"') == 20
    assert body.endswith(b"data: [DONE]\n\n")
