"""Runs a list of requests on an engine in this process, for the comparisons of `noria bench`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import uvloop

from noria.bench.engine_target import EngineTarget
from noria.bench.generator import Generator
from noria.bench.outcome import Outcome
from noria.bench.pieces import Piece, Planned
from noria.bench.play import Play, followers_of
from noria.bench.target import TargetFacts
from noria.bench.workload import Workload, make_workload
from noria.cli.bench_child import start_measured_engine
from noria.config.asked import EngineOptions
from noria.config.benching import WorkloadOptions
from noria.config.errors import EngineError
from noria.config.parse import with_settings

_LIMIT_S = 600.0
_WARM_UP = Planned(-1, (Piece("warm-up", 32),), 4)


@dataclass(frozen=True, slots=True)
class Played:
    """steps: of the load alone. block_size, max_num_seqs: of the engine, as settled."""

    workload: Workload
    outcomes: tuple[Outcome, ...]
    steps: tuple[dict[str, Any], ...]
    fingerprint: dict[str, Any]

    @property
    def seconds(self) -> float:
        return max(one.end_s for one in self.outcomes)

    @property
    def num_output(self) -> int:
        return sum(one.num_output for one in self.outcomes)

    @property
    def mean_ttft_s(self) -> float:
        return mean(one.ttft_s for one in self.outcomes)

    @property
    def cached_share(self) -> float:
        """Of prompt tokens, what came from the prefix cache."""
        return sum(one.num_cached or 0 for one in self.outcomes) / sum(
            one.num_prompt for one in self.outcomes
        )

    def mean_step_us(self, part: str) -> float:
        return mean(step[part] for step in self.steps)


def play_at_once(asked: EngineOptions, workload: WorkloadOptions, count: int, **settings: object) -> Played:
    """Start an engine with some settings over those that were asked for, and give it all requests at once, or, of a
    trace, at their instants. Raises ModelError, ConfigError, and EngineError where a request failed."""
    return uvloop.run(_play(with_settings(asked, settings), workload, count))


async def _play(asked: EngineOptions, options: WorkloadOptions, count: int) -> Played:
    engine, tokenizer, fingerprint = await asyncio.to_thread(start_measured_engine, asked)
    max_model_len = engine.resolved.config.scheduler.max_model_len
    facts = TargetFacts(engine.resolved.config.model_name, max_model_len, True, fingerprint)
    target = EngineTarget(
        engine.client,
        facts,
        lambda text: tokenizer.encode(text, add_special_tokens=False),
        options.bench_seed,
        asyncio.get_running_loop(),
        tokenizer.decode,
    )
    try:
        await _send(target, (_WARM_UP,), None)
        num_before = len(target.steps())
        workload = await asyncio.to_thread(make_workload, options, count, max_model_len, target.count_tokens)
        times = None if workload.times_s is None else workload.times_s.tolist()
        outcomes = await _send(target, workload.requests, times)
        return Played(workload, tuple(outcomes), tuple(target.steps()[num_before:]), fingerprint)
    finally:
        target.close()


async def _send(
    target: EngineTarget, requests: Sequence[Planned], times_s: list[float] | None
) -> list[Outcome]:
    followers = followers_of(tuple(requests)) if times_s is None else {}
    later = set(followers.values())
    instants = [0.0] * len(requests) if times_s is None else times_s
    due = tuple((instant, place) for place, instant in enumerate(instants) if place not in later)
    play = Play(tuple(requests), due, followers, False, None, None, None)
    outcomes = await Generator(target, play, _LIMIT_S).run()
    bad = next((one for one in outcomes if not one.is_ok), None)
    if bad is not None:
        raise EngineError(f"request {bad.index} ended with {bad.status.value}: {bad.error}")
    return sorted(outcomes, key=lambda one: one.index)
