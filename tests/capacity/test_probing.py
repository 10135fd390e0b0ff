"""The load that steps are learnt from shows every kind of them, ends in time, and leaves nothing behind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from noria.capacity.measured import measured_steps
from noria.capacity.probing import Level, levels, probe
from noria.capacity.step_model import Regime
from noria.core.clock import MonotonicClock, VirtualClock
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import StepResult
from noria.engine.in_process import InProcessClient
from noria.engine.making import make_loop
from noria.engine.messages import EngineStats, GenerateRequest
from noria.engine.records import Recorder
from support_engine import engine_config
from support_ledger_runner import LedgerRunner


def test_levels_rise_to_what_runs_at_once_and_share_the_time() -> None:
    stages = levels(engine_config(max_num_seqs=20), 60.0)
    for is_deep in (False, True):
        of_a_kind = [stage for stage in stages if stage.is_deep is is_deep]
        assert [stage.num_seqs for stage in of_a_kind] == [1, 2, 3, 4, 6, 8, 12, 16, 20]
        assert abs(sum(stage.seconds for stage in of_a_kind) - 30.0) < 1e-9
    assert [stage.num_seqs for stage in levels(engine_config(max_num_seqs=1), 9.0)] == [1, 1]


def _settled(client: InProcessClient) -> EngineStats:
    """Of an engine that nobody asks for anything: an end is told before the step with it is over."""
    end_s = time.monotonic() + 60
    while (stats := client.stats()).num_running and time.monotonic() < end_s:
        time.sleep(0.001)
    return stats


class _Unhurried(LedgerRunner):
    """Takes longer for a step than a client takes to send a request, as a model does. The clock counts steps alone:
    whatever holds up the client, the time of a level passes with the steps that it is to show.
    """

    def __init__(self, block_size: int, clock: VirtualClock) -> None:
        super().__init__(block_size)
        self._clock = clock

    def collect(self, *arguments: Any) -> StepResult:
        time.sleep(0.002)
        self._clock.advance(0.002)
        return super().collect(*arguments)


def test_a_probe_shows_every_kind_of_step_and_leaves_nothing_behind() -> None:
    config = engine_config(num_blocks=400, block_size=4, max_num_seqs=6, max_num_batched_tokens=64)
    recorder, clock = Recorder(), VirtualClock()
    runner = _Unhurried(config.cache.block_size, clock)
    client = InProcessClient(
        lambda publish: make_loop(config, runner, MonotonicClock(), recorder, publish), config
    )
    told: list[float] = []
    try:
        stages = [Level(1, 0.2), Level(6, 0.5, is_deep=True), Level(6, 0.5)]
        probe(client, config, stages, clock, told.append)
        stats = _settled(client)
    finally:
        client.shutdown()
    steps = measured_steps(recorder.steps())
    assert {Regime.of(step.features) for step in steps} == set(Regime)
    together = {step.features.num_seqs for step in steps}
    assert 1 in together and 4 <= max(together) <= 6
    assert max(step.features.decode_context for step in steps) > 500
    assert (stats.num_running, stats.num_waiting, stats.num_blocks_used) == (0, 0, 0)
    assert told == sorted(told) and 0 < told[0] <= told[-1] <= 1


class _AtOnce:
    """An engine that answers each request when it comes, a hundredth of a second later. Keeps their lengths."""

    def __init__(self, clock: VirtualClock) -> None:
        self.lengths: list[int] = []
        self._clock = clock

    def submit(
        self, requests: Sequence[GenerateRequest], sink: Callable[[Sequence[Delta]], None]
    ) -> Future[None]:
        verdict: Future[None] = Future()
        verdict.set_result(None)
        for request in requests:
            self.lengths.append(len(request.prompt_token_ids))
            self._clock.advance(0.01)
            sink([Delta(request.request_id, finish=FinishReason.LENGTH)])
        return verdict

    def cancel(self, request_ids: Sequence[str]) -> None:
        """All have ended."""


@pytest.mark.parametrize(("is_deep", "least", "most"), [(False, 30, 250), (True, 600, 1024)])
def test_deep_levels_have_long_contexts_and_the_others_short_ones(
    is_deep: bool, least: int, most: int
) -> None:
    clock = VirtualClock()
    client = _AtOnce(clock)
    config = engine_config(max_model_len=2048, num_blocks=400, block_size=16)
    probe(cast(Any, client), config, [Level(6, 3.0, is_deep)], clock)
    assert len(client.lengths) > 200
    assert least < statistics.mean(client.lengths) < most
