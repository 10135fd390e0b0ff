"""An engine behind a wire behaves as one in the same process, and its end is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

import pytest

from noria.config.errors import EngineError, OverloadError, RequestError
from noria.core.outputs import FinishReason
from noria.engine.messages import EngineFacts, GenerateRequest
from noria.engine.remote.client import RemoteClient
from noria.engine.remote.page import EngineState
from noria.sampling.params import SamplingParams
from support_engine import solo_output
from support_gated_runner import GatedRunner
from support_intake import FULL
from support_ledger_runner import LedgerRunner
from support_remote import FACTS, HostedEngine, Inbox, hosted, until

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)

Result = TypeVar("Result")


def request(name: str, params: SamplingParams = GREEDY) -> GenerateRequest:
    return GenerateRequest(name, (1, 2, 3), params, 0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), timeout=60)

    asyncio.run(bounded())


async def verdict(submitted: Future[None]) -> None:
    await asyncio.wrap_future(submitted)


def test_outputs_are_those_of_an_engine_in_the_same_process() -> None:
    async def scenario() -> None:
        async with hosted() as (_, (client,), _directory):
            inbox = Inbox()
            await verdict(client.submit([request("a"), request("b")], inbox))
            await inbox.ended("a", "b")
            for name in ("a", "b"):
                assert inbox.output(name) == solo_output([1, 2, 3], 6)
                assert inbox.last(name).finish is FinishReason.LENGTH

    run(scenario)


def test_records_are_there_when_the_news_of_an_end_is() -> None:
    async def scenario() -> None:
        async with hosted(num_apis=2) as (hosted_engine, (client, other), _):
            inbox = Inbox()
            await verdict(client.submit([request("a")], inbox))
            await inbox.ended("a")
            (record,) = client.recorder.requests()
            assert (record.request_id, record.num_output_tokens) == ("a", 6)
            assert client.recorder.steps() == hosted_engine.engine.recorder.steps()
            await until(lambda: other.recorder.steps() == client.recorder.steps())
            assert other.recorder.requests() == [record]

    run(scenario)


def test_clients_get_the_news_of_their_own_requests_alone() -> None:
    async def scenario() -> None:
        async with hosted(num_apis=3) as (_, clients, _directory):
            inboxes = [Inbox() for _ in clients]
            for i, (client, inbox) in enumerate(zip(clients, inboxes, strict=True)):
                await verdict(client.submit([request(f"r{i}")], inbox))
            for i, inbox in enumerate(inboxes):
                await inbox.ended(f"r{i}")
                assert {delta.request_id for delta in inbox.deltas} == {f"r{i}"}
                assert inbox.output(f"r{i}") == solo_output([1, 2, 3], 6)

    run(scenario)


def test_a_refusal_is_raised_as_it_was_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with hosted() as (_, (client,), _directory):
            too_long = GenerateRequest("a", tuple(range(40)) * 8, GREEDY, 0)
            inbox = Inbox()
            with pytest.raises(RequestError, match="maximum context length is 256"):
                await verdict(client.submit([request("b"), too_long], inbox))
            await verdict(client.submit([request("a"), request("b")], inbox))  # neither was queued
            await inbox.ended("a", "b")

    run(scenario)


def test_a_cancel_ends_a_request_while_a_step_runs_and_frees_its_blocks() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(runner=runner) as (_, (client,), _directory):
            inbox = Inbox()
            await verdict(client.submit([request("a", LONG)], inbox))
            runner.gate.release(1)
            await until(lambda: client.stats().num_running == 1)
            client.cancel(["a", "unknown"])
            await runner.step_until(lambda: inbox.deltas and inbox.deltas[-1].finish)
            assert inbox.last("a").finish is FinishReason.ABORT
            await runner.step_until(lambda: client.stats().num_blocks_used == 0)
            assert len(inbox.output("a")) < 100

    run(scenario)


def test_a_verdict_does_not_wait_for_the_step_that_runs() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(runner=runner) as (_, (client,), _directory):
            inbox = Inbox()
            await verdict(client.submit([request("a")], inbox))
            await verdict(client.submit([request("b")], inbox))  # the step of "a" is not let on
            with pytest.raises(RequestError, match="in use"):
                await verdict(client.submit([request("a")], inbox))
            runner.gate.release(1000)
            await inbox.ended("a", "b")

    run(scenario)


def test_the_page_tells_what_the_engine_does() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(runner=runner) as (hosted_engine, (client,), _):
            assert client.stats().is_alive
            inbox = Inbox()
            await verdict(client.submit([request("a"), request("b")], inbox))
            runner.gate.release(1)
            await until(lambda: client.stats().num_running == 2)
            assert client.stats().num_blocks == 64
            assert client.stats().num_blocks_used > 0
            runner.gate.release(1000)
            await inbox.ended("a", "b")
            await until(lambda: client.stats().num_running == 0)
            assert client.stats().step == hosted_engine.engine.stats().step == 6
            assert client.stats().beat_age_s < 5

    run(scenario)


def test_requests_are_lost_with_their_engine_and_the_next_one_takes_new_ones() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(runner=runner) as (first, (client,), directory):
            inbox = Inbox()
            await verdict(client.submit([request("a", LONG)], inbox))
            undecided = client.submit([request("b", LONG)], inbox)
            first.page.engine_ended()  # as the supervisor says when the process is gone
            await inbox.ended("a")
            assert inbox.last("a").finish is FinishReason.LOST
            assert undecided.exception() is None or isinstance(undecided.exception(), EngineError)
            assert not client.stats().is_alive
            with pytest.raises(EngineError, match="not running"):
                await verdict(client.submit([request("c")], inbox))
            runner.gate.release(1000)
            second = HostedEngine(first.page, directory, LedgerRunner(4))
            await until(lambda: client.stats().is_alive)
            await verdict(client.submit([request("a")], inbox))  # its name is free again
            await inbox.ended("a")
            await until(lambda: len(inbox.output("a")) == 6)
            second.stop()

    run(scenario)


def test_the_facts_of_the_next_engine_are_told_before_it_gets_a_request() -> None:
    async def scenario() -> None:
        async with hosted() as (engine, [client], directory):
            heard: list[EngineFacts] = []
            client.on_facts = heard.append
            engine.stop()
            await until(lambda: not client.stats().is_alive)
            smaller = replace(
                FACTS, max_model_len=16, cache_labels={"block_size": "4", "num_gpu_blocks": "4"}
            )
            engine.__init__(engine.page, directory, LedgerRunner(4), smaller)
            inbox = Inbox()
            await until(lambda: client.stats().is_alive)
            assert heard == [smaller]
            await asyncio.wrap_future(client.submit([request("a")], inbox))
            await inbox.ended("a")

    run(scenario)


def test_what_a_vanished_client_asked_for_is_cancelled() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(num_apis=2, runner=runner) as (hosted_engine, (client, other), _):
            inbox, kept = Inbox(), Inbox()
            await verdict(client.submit([request("a", LONG)], inbox))
            await verdict(other.submit([request("b")], kept))
            runner.gate.release(2)  # "b" joins in the second step
            await until(lambda: other.stats().num_running == 2)
            hosted_engine.page.api_ended(0)
            await until(lambda: not hosted_engine.host._sessions or len(hosted_engine.host._sessions) == 1)
            runner.gate.release(1000)
            await kept.ended("b")
            assert kept.output("b") == solo_output([1, 2, 3], 6)
            await until(lambda: other.stats().num_blocks_used == 0)
            records = {record.request_id: record for record in other.recorder.requests()}
            assert records["a"].finish is FinishReason.ABORT

    run(scenario)


def test_a_client_that_takes_no_messages_loses_its_requests_and_learns_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noria.engine.remote.host._MAX_UNREAD", 200)
    monkeypatch.setattr("noria.engine.remote.line._MAX_UNREAD", 100)

    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(num_apis=2, runner=runner) as (hosted_engine, (client, other), _):
            asyncio.get_running_loop().remove_reader(client._line._descriptor)
            client._timer.cancel()  # stopped: it reads no more
            stalled, kept = Inbox(), Inbox()
            undecided = client.submit([request("a", LONG)], stalled)
            stalled_session = client._link.session
            num_neighbours = 0
            while hosted_engine.page.lost_session(0) != stalled_session:
                name = f"b{num_neighbours}"
                await verdict(other.submit([request(name, LONG)], kept))
                await runner.step_until(lambda: len(kept.output(name)) == 200)  # noqa: B023
                assert kept.output(name) == solo_output([1, 2, 3], 200)  # it never notices
                num_neighbours += 1
                assert num_neighbours < 50
            client._look()  # goes on
            await until(lambda: not client._sinks.open_requests())
            assert undecided.exception() is None or isinstance(undecided.exception(), EngineError)
            await until(lambda: client._link is not None and client._link.is_welcome)
            inbox = Inbox()
            await verdict(client.submit([request("c")], inbox))
            await runner.step_until(lambda: client._line.read() or len(inbox.output("c")) == 6)
            assert inbox.output("c") == solo_output([1, 2, 3], 6)
            await runner.step_until(lambda: other.stats().num_blocks_used == 0)
            runner.gate.release(1000)  # a step that only tells the runner whom to forget may be waiting

    run(scenario)


def test_submissions_before_the_engine_is_there_are_refused() -> None:
    async def scenario() -> None:
        async with hosted(num_spare=1) as (hosted_engine, _, directory):
            page = hosted_engine.page
            late = RemoteClient(page, 1, directory)
            with pytest.raises(EngineError, match="not running"):
                await verdict(late.submit([request("a")], Inbox()))
            assert not late.stats().is_alive
            assert await late.facts() == FACTS
            await late.linked()
            assert late.stats().is_alive
            assert page.engine().state is EngineState.READY
            late.shutdown()

    run(scenario)


def test_a_client_that_comes_late_learns_the_state_of_every_block() -> None:
    def blocks(client: RemoteClient) -> dict[int, int]:
        steps = {number: state for step in client.recorder.steps() for number, state in step.changed_blocks}
        ends = {number: state for end in client.recorder.requests() for number, state in end.changed_blocks}
        return {**steps, **ends}

    async def scenario() -> None:
        async with hosted(num_spare=1) as (hosted_engine, (early,), directory):
            inbox = Inbox()
            await verdict(early.submit([request("before", LONG)], inbox))
            await inbox.ended("before")
            await until(lambda: len(early.recorder.requests()) == 1)
            held = blocks(early)
            assert len(held) > 10
            hosted_engine.page.api_starts(1)
            late = RemoteClient(hosted_engine.page, 1, directory)
            await late.linked()
            await verdict(late.submit([replace(request("after"), prompt_token_ids=(9,))], inbox))
            await inbox.ended("after")
            await until(lambda: len(late.recorder.requests()) == 1 and len(early.recorder.requests()) == 2)
            assert set(blocks(late)) >= set(held)
            assert blocks(late) == blocks(early)
            late.shutdown()

    run(scenario)


def test_a_client_knows_what_is_inside_the_engine_and_nothing_of_one_that_is_gone() -> None:
    async def scenario() -> None:
        runner = GatedRunner()
        async with hosted(runner=runner) as (engine, (client,), _directory):
            inbox = Inbox()
            empty = client.crowd()
            assert empty is not None and empty.num_live == 0
            await verdict(client.submit([request("a", LONG), request("b", LONG)], inbox))
            inside = client.crowd()
            assert inside == engine.engine.crowd()
            assert inside is not None and (inside.num_queued, inside.num_queued_tokens) == (2, 6)
            client.cancel(["a", "b"])
            runner.gate.release(1000)
            await inbox.ended("a", "b")
            await until(lambda: client.crowd() == engine.engine.crowd())
            assert client.crowd().num_live == 0
            engine.page.engine_ended()
            assert (client.crowd(), engine.page.crowd()) == (None, None)

    run(scenario)


def test_what_the_engine_would_refuse_is_refused_without_asking_it() -> None:
    async def scenario() -> None:
        async with hosted() as (engine, (client,), _directory):
            inbox = Inbox()
            engine.page.put_crowd(FULL)
            with pytest.raises(OverloadError, match=r"3 requests wait .* queues 3"):
                await verdict(client.submit([request("a")], inbox))
            assert engine.engine.crowd().num_live == 0
            engine.page.put_crowd(engine.engine.crowd())
            await verdict(client.submit([request("a")], inbox))  # its name is free
            await inbox.ended("a")

    run(scenario)
