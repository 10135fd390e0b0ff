"""Looking at running requests and ending them from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from noria.config.tenant import Tenant
from noria.core.outputs import FinishReason
from noria.engine.messages import GenerateRequest
from noria.sampling.params import SamplingParams
from noria.server.bridge import Bridge, Inbox
from support_server import CHAT, TEXT, AsgiCall, FakeEngine, Server, app_for, says, serving


def on_loop(scenario: Callable[[FakeEngine, Any], Any]) -> None:
    """Run against an engine that steps when told to, with an endless answer."""
    engine = FakeEngine(says("again ", ends=False), is_auto=False)
    asyncio.run(scenario(engine, app_for(engine)))


async def load(app: Any) -> int:
    call = AsgiCall(app, "/load", b"", method="GET")
    await call.finished()
    return json.loads(call.bodies[0])["server_load"]


async def abort(app: Any, body: Any) -> list[str]:
    call = AsgiCall(app, "/abort_requests", body)
    await call.finished()
    assert call.status == 200
    return json.loads(call.bodies[0])["cancelled_request_ids"]


async def begun(app: Any, engine: FakeEngine, path: str, body: dict, **headers: str) -> AsgiCall:
    known = len(engine.submitted)
    call = AsgiCall(app, path, body, headers={name.replace("_", "-"): text for name, text in headers.items()})
    await call.until(lambda: len(engine.submitted) > known)
    return call


@pytest.mark.parametrize("meant", ["mine", "cmpl-mine"])
def test_a_request_is_ended_with_what_it_has_by_the_ids_that_clients_see(meant: str) -> None:
    async def scenario(engine: FakeEngine, app: Any) -> None:
        call = await begun(app, engine, "/v1/completions", {**TEXT, "max_tokens": 50}, x_request_id="mine")
        other = await begun(app, engine, "/v1/completions", {**TEXT, "max_tokens": 2}, x_request_id="other")
        engine.step()
        await asyncio.sleep(0)
        assert await abort(app, {"request_ids": [meant, "unknown"]}) == ["cmpl-mine"]
        await call.finished()
        [choice] = json.loads(call.bodies[0])["choices"]
        assert choice["finish_reason"] == "abort"
        assert json.loads(call.bodies[0])["usage"]["completion_tokens"] == 1
        assert engine.cancel_reasons == [FinishReason.ABORT]
        engine.step()
        await other.finished()
        assert json.loads(other.bodies[0])["choices"][0]["finish_reason"] == "length"

    on_loop(scenario)


def test_the_id_in_the_body_counts_as_well_and_a_stream_ends_in_its_usual_way() -> None:
    async def scenario(engine: FakeEngine, app: Any) -> None:
        body = {**CHAT, "max_tokens": 20, "stream": True, "request_id": "mine", "n": 2}
        call = await begun(app, engine, "/v1/chat/completions", body)
        assert await abort(app, {"request_ids": ["mine"]}) == ["chatcmpl-mine"]
        await call.finished()
        text = b"".join(call.bodies).decode()
        assert text.count('"finish_reason":"abort"') == 2
        assert text.endswith("data: [DONE]\n\n")

    on_loop(scenario)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/responses", {"input": "turn"}, {"status": "incomplete", "incomplete_details": None}),
        ("/v1/messages", {**CHAT, "max_tokens": 20}, {"stop_reason": "pause_turn", "stop_sequence": None}),
    ],
)
def test_no_protocol_takes_an_aborted_answer_for_a_complete_one(path: str, body: dict, said: dict) -> None:
    async def scenario(engine: FakeEngine, app: Any) -> None:
        call = await begun(app, engine, path, body, x_request_id="mine")
        assert len(await abort(app, {"request_ids": ["mine"]})) == 1
        await call.finished()
        answer = json.loads(call.bodies[0])
        assert {name: answer[name] for name in said} == said

    on_loop(scenario)


@pytest.mark.parametrize("body", [{}, {"request_ids": []}, {"request_ids": None}])
def test_without_ids_everything_is_ended_and_the_load_tells_how_much_that_was(body: dict) -> None:
    async def scenario(engine: FakeEngine, app: Any) -> None:
        assert await load(app) == 0
        calls = [
            await begun(app, engine, "/v1/completions", {**TEXT, "n": 3}, x_request_id=f"id{i}")
            for i in range(3)
        ]
        assert await load(app) == 3
        assert await abort(app, body) == [f"cmpl-id{i}" for i in range(3)]
        for call in calls:
            await call.finished()
        assert await load(app) == 0
        assert len(engine.cancelled) == 9

    on_loop(scenario)


def test_a_tenant_ends_its_own_requests_alone() -> None:
    async def scenario() -> None:
        engine = FakeEngine(is_auto=False)
        bridge = Bridge(engine)
        for name in ("one", "two"):
            request = GenerateRequest(f"cmpl-{name}.0-0-0", (5,), SamplingParams(), 0, tenant=Tenant(name))
            await bridge.submit([request], Inbox())
        assert bridge.abort(None, "") == []
        assert bridge.abort(["one"], "two") == []
        assert bridge.abort(None, "two") == ["cmpl-two"]
        assert engine.cancelled == ["cmpl-two.0-0-0"]

    asyncio.run(scenario())


def test_a_key_ends_nothing_of_another_keys() -> None:
    async def scenario() -> None:
        engine = FakeEngine(says("again ", ends=False), is_auto=False)
        app = app_for(engine, api_key=["one", "two"])
        call = await begun(app, engine, "/v1/completions", TEXT, authorization="Bearer one")
        answers = {}
        for key in ("two", "one"):
            aborting = AsgiCall(app, "/abort_requests", {}, {"authorization": f"Bearer {key}"})
            await aborting.finished()
            answers[key] = len(json.loads(aborting.bodies[0])["cancelled_request_ids"])
        assert answers == {"two": 0, "one": 1}
        await call.finished()

    asyncio.run(scenario())


def test_no_body_and_no_ids_mean_all_of_them() -> None:
    async def scenario(engine: FakeEngine, app: Any) -> None:
        for number, body in enumerate((b"", {}, {"request_ids": []}, {"request_ids": None})):
            call = await begun(
                app, engine, "/v1/completions", {**TEXT, "max_tokens": 50}, x_request_id=f"r{number}"
            )
            assert await abort(app, body) == [f"cmpl-r{number}"]
            await call.finished()

    on_loop(scenario)


@pytest.mark.parametrize("request_ids", ["mine", [5], {"a": 1}])
def test_ids_that_are_none_are_refused(server: Server, request_ids: Any) -> None:
    answer = server.post("/abort_requests", request_ids=request_ids)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "request_ids")


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Server]:
    with serving(FakeEngine()) as server:
        yield server


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("JSON", 'JSON {"named_metrics":{"kv_cache_usage_perc":0.0,"num_requests_waiting":0}}'),
        ("text", "TEXT named_metrics.kv_cache_usage_perc=0.0, named_metrics.num_requests_waiting=0"),
        ("BIN", None),
    ],
)
def test_a_request_may_ask_for_the_load_with_its_answer(
    plain_server: Server, asked: str, expected: str | None
) -> None:
    plain_server.engine.wait_for(lambda: not plain_server.engine.is_busy)
    answer = plain_server.get("/v1/models", headers={"endpoint-load-metrics-format": asked})
    assert answer.headers.get("endpoint-load-metrics") == expected
    assert "endpoint-load-metrics" not in plain_server.get("/v1/models").headers
