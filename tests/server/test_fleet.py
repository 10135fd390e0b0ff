"""Several API processes answer as one would."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from noria.core.outputs import FinishReason
from noria.core.plan import Work
from noria.engine.messages import EngineStats, StepRecord
from noria.server.engine_metrics import EngineMetrics
from noria.server.fleet import Fleet
from noria.server.fleet_metrics import FleetMetrics
from noria.server.http_metrics import HttpMetrics
from noria.server.ledger import Ledger, combined
from support_server import TEXT, AsgiCall, FakeEngine, app_for, says

STATS = EngineStats(1, 0, 0, 8, 0, 0, True)


class LinkedPeers:
    """Peers in one process."""

    def __init__(self, all_peers: list[LinkedPeers]) -> None:
        self._all = all_peers
        self._topics: dict[str, Callable[[bytes], bytes]] = {}
        all_peers.append(self)

    def on_question(self, topic: str, answer: Callable[[bytes], bytes]) -> None:
        self._topics[topic] = answer

    async def ask(self, topic: str, content: bytes) -> Sequence[bytes]:
        return [peer._topics[topic](content) for peer in self._all if peer is not self]


class Fleets:
    """API processes on engines of their own, which makes it plain where a request is; their ledger is one."""

    def __init__(self, directory: Path, count: int = 2, **options: Any) -> None:
        self._directory = directory
        self._count = count
        self._options = options
        self._peers: list[LinkedPeers] = []
        self.engines = [FakeEngine(says("again ", ends=False), is_auto=False) for _ in range(count)]
        self.apps = [self.start(slot) for slot in range(count)]

    def start(self, slot: int, name: str | None = None) -> Any:
        """A process in that place."""
        ledger = Ledger(str(self._directory), slot, self._count)
        fleet = Fleet(name or str(slot), LinkedPeers(self._peers), ledger)
        return app_for(self.engines[slot], fleet=fleet, **self._options)

    async def begun(self, slot: int, body: dict[str, Any], **headers: str) -> AsgiCall:
        engine = self.engines[slot]
        known = len(engine.submitted)
        call = AsgiCall(self.apps[slot], "/v1/completions", body, headers=headers)
        await call.until(lambda: len(engine.submitted) > known)
        return call


async def answer(app: Any, path: str, body: Any = b"", method: str = "POST") -> Any:
    call = AsgiCall(app, path, body, method=method)
    await call.finished()
    assert call.status == 200
    return json.loads(call.bodies[0])


async def scrape(app: Any) -> dict[str, float]:
    """Series by name and the values of their labels, in the order of the labels' names."""
    call = AsgiCall(app, "/metrics", b"", method="GET")
    await call.finished()
    families = text_string_to_metric_families(b"".join(call.bodies).decode())
    return {
        ",".join((sample.name, *sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_request_is_ended_through_a_process_that_does_not_hold_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleets = Fleets(tmp_path)
        held = [await fleets.begun(slot, TEXT, **{"x-request-id": f"id{slot}"}) for slot in (0, 1)]
        assert [await answer(app, "/load", method="GET") for app in fleets.apps] == [{"server_load": 2}] * 2
        ended = await answer(fleets.apps[0], "/abort_requests", {"request_ids": ["id1", "unknown"]})
        assert ended == {"cancelled_request_ids": ["cmpl-id1"]}
        await held[1].finished()
        assert json.loads(held[1].bodies[0])["choices"][0]["finish_reason"] == "abort"
        assert (fleets.engines[0].cancelled, fleets.engines[1].cancel_reasons) == ([], [FinishReason.ABORT])
        assert await answer(fleets.apps[1], "/abort_requests", {}) == {"cancelled_request_ids": ["cmpl-id0"]}
        await held[0].finished()

    asyncio.run(scenario())


def test_one_id_at_two_processes_is_two_requests_in_the_engine_and_one_to_clients(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleets = Fleets(tmp_path)
        held = [await fleets.begun(slot, {**TEXT, "request_id": "mine"}) for slot in (0, 1)]
        [[first], [second]] = [engine.submitted for engine in fleets.engines]
        assert first.request_id != second.request_id
        ended = await answer(fleets.apps[1], "/abort_requests", {"request_ids": ["mine"]})
        assert ended == {"cancelled_request_ids": ["cmpl-mine"]}
        for call in held:
            await call.finished()

    asyncio.run(scenario())


def test_a_process_ends_nothing_of_another_keys_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleets = Fleets(tmp_path, api_key=["one", "two"])
        call = await fleets.begun(1, TEXT, authorization="Bearer one")
        for key, count in (("two", 0), ("one", 1)):
            aborting = AsgiCall(fleets.apps[0], "/abort_requests", {}, {"authorization": f"Bearer {key}"})
            await aborting.finished()
            assert len(json.loads(aborting.bodies[0])["cancelled_request_ids"]) == count
        await call.finished()

    asyncio.run(scenario())


MODELS = "http_requests_total,/v1/models,GET,2xx"
LOADS = "http_requests_total,/load,GET,2xx"
SLOWEST = "http_request_duration_seconds_bucket,/v1/models,+Inf,GET"


def test_a_scrape_of_any_process_tells_of_the_requests_to_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleets = Fleets(tmp_path, count=3)
        for slot, count in enumerate((3, 0, 4)):
            for _ in range(count):
                await answer(fleets.apps[slot], "/v1/models", method="GET")
        await answer(fleets.apps[2], "/load", method="GET")
        for app in fleets.apps:
            await scrape(app)  # which makes each write what it has counted
        for app in fleets.apps:
            seen = await scrape(app)
            assert (seen[MODELS], seen[SLOWEST], seen[LOADS]) == (7, 7, 1)

    asyncio.run(scenario())


def test_what_was_told_once_is_never_less_later_whichever_process_tells_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        fleets = Fleets(tmp_path)
        told = 0.0
        for round_number in range(6):
            await answer(fleets.apps[round_number % 2], "/v1/models", method="GET")
            for slot in (1, 0):
                seen = (await scrape(fleets.apps[slot])).get(MODELS, 0.0)
                assert seen >= told
                told = seen
            if round_number == 3:
                fleets.apps[0] = fleets.start(0, "0-3")  # in the place of one that was killed
        assert told == 6

    asyncio.run(scenario())


def step_record(step: int, work: tuple[Work, ...] = (), **changes: Any) -> StepRecord:
    counts = {item.name: 0 for item in fields(StepRecord)}
    told = {**counts, "ttfts_s": (), "token_gaps_s": (), "arrived_ids": (), **changes}
    return StepRecord(**{**told, "step": step, "work": work})


def engine_metrics(*records: Any) -> EngineMetrics:
    metrics = EngineMetrics("wheel", 64, lambda: STATS, lambda: {"block_size": "16"})
    for record in records:
        metrics.on_step(record)
    return metrics


def told(metrics: FleetMetrics) -> list[Metric]:
    asyncio.run(metrics.refresh())
    return list(metrics.collect())


def test_a_disk_that_keeps_a_writer_waiting_does_not_keep_the_loop_waiting(tmp_path: Path) -> None:
    class SlowLedger(Ledger):
        def write(self, entry: Any) -> None:
            writing.set()
            assert may_write.wait(20)
            super().write(entry)

    async def scenario() -> None:
        metrics = FleetMetrics(SlowLedger(str(tmp_path), 0, 2), engine_metrics(), HttpMetrics("wheel"))
        refreshing = asyncio.ensure_future(metrics.refresh())
        while not writing.is_set():
            await asyncio.sleep(0)  # the loop turns while the other thread cannot
        assert not refreshing.done()
        may_write.set()
        await refreshing
        assert value(list(metrics.collect()), "vllm:generation_tokens_total") == 0

    writing, may_write = threading.Event(), threading.Event()
    asyncio.run(scenario())


def value(families: Sequence[Metric], name: str) -> float:
    [found] = [sample.value for family in families for sample in family.samples if sample.name == name]
    return found


def test_a_process_that_comes_later_tells_what_the_engine_did_before(tmp_path: Path) -> None:
    steps = [step_record(number, num_sampled_tokens=4) for number in range(3)]

    def process(slot: int, *records: Any) -> FleetMetrics:
        ledger = Ledger(str(tmp_path), slot, 2)
        return FleetMetrics(ledger, engine_metrics(*records), HttpMetrics("wheel"))

    assert value(told(process(0, *steps)), "vllm:generation_tokens_total") == 12
    late = process(1, step_record(3, num_sampled_tokens=4))
    assert value(told(late), "vllm:generation_tokens_total") == 16
    behind = process(0)  # has heard of nothing since
    assert value(told(behind), "vllm:generation_tokens_total") == 16


def test_what_ran_before_a_process_was_told_of_it_is_no_newcomer_to_it() -> None:
    known = step_record(
        4, work=(Work("old", 30, 1, (), True), Work("new", 10, 6, (), True)), arrived_ids=("new",)
    )
    again = step_record(5, work=(Work("old", 31, 1, (), True), Work("new", 16, 1, (), True)))
    families = list(engine_metrics(known, again).collect())
    assert value(families, "vllm:prompt_tokens_cached_total") == 10


def test_families_are_combined_series_by_series_and_gauges_are_the_first_ones() -> None:
    def source(*counts: tuple[str, float], gauge: float) -> list[Metric]:
        counter, level = Metric("hits", "Hits.", "counter"), Metric("level", "Level.", "gauge")
        for label, count in counts:
            counter.add_sample("hits_total", {"way": label}, count)
        level.add_sample("level", {}, gauge)
        return [counter, level]

    first, second = source(("a", 1), ("b", 2), gauge=5), source(("b", 10), ("c", 20), gauge=6)
    counter, level = combined(first, [second], max)
    assert [(sample.labels["way"], sample.value) for sample in counter.samples] == [
        ("a", 1),
        ("b", 10),
        ("c", 20),
    ]
    assert [sample.value for sample in level.samples] == [5]
    assert [sample.value for sample in combined([], [second], max)[0].samples] == [10, 20]
    assert combined(first, [[], []], max) == tuple(first)


def test_a_directory_that_cannot_be_written_costs_no_scrape(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(str(tmp_path / "gone"), 0, 2)
    families = told(FleetMetrics(ledger, engine_metrics(), HttpMetrics("wheel")))
    assert value(families, "vllm:generation_tokens_total") == 0
    assert "cannot be told" in caplog.text
