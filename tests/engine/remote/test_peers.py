"""API processes of one engine ask each other, and what an engine grants it grants over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest

from noria.config.errors import OverloadError, Refusal
from noria.config.tenant import Tenant
from noria.engine.messages import GenerateRequest
from noria.engine.remote.client import RemoteClient
from noria.engine.remote.page import Page
from noria.sampling.params import SamplingParams
from support_gated_runner import GatedRunner
from support_remote import Inbox, hosted, until

LONG = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)


_LONG_S = 3600.0


def run(scenario: Callable[[], Awaitable[None]], limit_s: float = 60.0) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), timeout=limit_s)

    asyncio.run(bounded())


async def verdict(submitted: Future[None]) -> None:
    await asyncio.wrap_future(submitted)


def answer_as(client: RemoteClient, name: bytes) -> None:
    client.peers.on_question("who", lambda content: name + b" heard " + content)


def test_a_question_goes_to_every_other_process_and_all_answers_come_back() -> None:
    async def scenario() -> None:
        async with hosted(num_apis=3) as (_, clients, _directory):
            for number, client in enumerate(clients):
                answer_as(client, b"%d" % number)
            answers = await asyncio.gather(
                clients[1].peers.ask("who", b"x"),
                clients[1].peers.ask("who", b"y"),
                clients[2].peers.ask("who", b"z"),
            )
            assert [sorted(found) for found in answers] == [
                [b"0 heard x", b"2 heard x"],
                [b"0 heard y", b"2 heard y"],
                [b"0 heard z", b"1 heard z"],
            ]

    run(scenario)


def test_one_alone_and_one_without_an_engine_have_nobody_to_wait_for() -> None:
    async def scenario() -> None:
        async with hosted(num_apis=1, num_spare=1) as (hosted_engine, (client,), directory):
            assert await client.peers.ask("who", b"") == []
            late = RemoteClient(hosted_engine.page, 1, directory)
            assert await late.peers.ask("who", b"") == []
            late.shutdown()

    run(scenario)


def silenced(client: RemoteClient) -> None:
    """As if its process were stopped: it reads no more."""
    asyncio.get_running_loop().remove_reader(client._line._descriptor)
    client._timer.cancel()


def test_a_process_that_is_silent_is_left_out_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with hosted(num_apis=3) as (_, (client, silent, other), _directory):
            answer_as(other, b"other")
            silenced(silent)
            asking = asyncio.ensure_future(client.peers.ask("who", b"x"))
            await until(lambda: [one for one in client.peers._open.values() if one.num_asked and one.answers])
            assert not asking.done()
            loop = asyncio.get_running_loop()
            now_s = loop.time
            monkeypatch.setattr(loop, "time", lambda: now_s() + _LONG_S + 1)
            assert await asking == [b"other heard x"]

    monkeypatch.setattr("noria.engine.remote.peers._WAIT_S", _LONG_S)
    run(scenario, limit_s=2 * _LONG_S)


def test_whoever_waits_for_answers_waits_no_more_when_the_engine_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with hosted(num_apis=2) as (hosted_engine, (client, silent), _directory):
            silenced(silent)
            asking = asyncio.ensure_future(client.peers.ask("who", b"x"))
            await until(lambda: client.peers._open)
            hosted_engine.page.engine_ended()
            assert await asking == []

    monkeypatch.setattr("noria.engine.remote.peers._WAIT_S", _LONG_S)
    run(scenario)


def test_the_limits_of_a_key_hold_over_all_processes() -> None:
    async def scenario() -> None:
        tenant = Tenant("a", max_concurrent=2)
        runner = GatedRunner()
        async with hosted(num_apis=2, runner=runner) as (_, clients, _directory):
            inbox = Inbox()
            sequence = GenerateRequest("0", (1, 2, 3), LONG, 0, tenant=tenant)
            for number, client in enumerate(clients):
                await verdict(client.submit([replace(sequence, request_id=str(number))], inbox))
            for client in clients:
                with pytest.raises(OverloadError, match="2 requests running; it may have 2") as refused:
                    await verdict(client.submit([replace(sequence, request_id="more")], inbox))
                assert refused.value.reason is Refusal.KEY_REQUESTS
            runner.gate.release(1000)
            await inbox.ended("0", "1")
            await verdict(clients[0].submit([replace(sequence, request_id="more")], inbox))
            await inbox.ended("more")

    run(scenario)


def test_the_page_names_the_processes_that_live() -> None:
    page = Page(2)
    page.engine_starts()
    assert page.pids() == {}
    page.put_engine_pid(7)
    for slot in (0, 1):
        page.api_starts(slot)
        page.put_api_pid(slot, 10 + slot)
    assert page.pids() == {"engine": 7, "api-0": 10, "api-1": 11}
    page.engine_ended()
    page.api_ended(0)
    assert page.pids() == {"api-1": 11}
