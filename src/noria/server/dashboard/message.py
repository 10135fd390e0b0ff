"""News of the engine as one server-sent event."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import orjson

from noria.engine.messages import EngineStats, StepRecord
from noria.server.dashboard.feed import End, News, Step


class _Names:
    """Request ids are long and come again and again: each is sent once a message, and meant by its place."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def __call__(self, request_id: str) -> int:
        return self.places.setdefault(request_id, len(self.places))


def encode(news: News, stats: EngineStats, about: Mapping[str, Any]) -> bytes:
    """A `snapshot` where the news tell all blocks, else `news`. about: goes with a snapshot."""
    names = _Names()
    content: dict[str, Any] = {
        "kind": "news" if news.blocks is None else "snapshot",
        "stats": _stats(stats),
        "steps": [_step(step, names, with_blocks=news.blocks is None) for step in news.steps],
        "ends": [_end(end, names) for end in news.ends],
    }
    if news.blocks is not None:
        content["about"] = about
        content["blocks"] = _run_lengths(news.blocks or bytes(stats.num_blocks))
    content["ids"] = list(names.places)
    return b"data: " + orjson.dumps(content) + b"\n\n"


def _stats(stats: EngineStats) -> dict[str, Any]:
    return {
        "running": stats.num_running,
        "waiting": stats.num_waiting,
        "blocks": stats.num_blocks,
        "used": stats.num_blocks_used,
        "cached": stats.num_blocks_cached,
        "alive": stats.is_alive,
    }


def _step(step: Step, names: _Names, *, with_blocks: bool) -> dict[str, Any]:
    """Times in milliseconds. work: [request, computed before, computed now, samples, blocks gained]."""
    number, record = step
    return {
        "n": number,
        "step": record.step,
        "at": record.start_s * 1e3,
        "ms": [1e3 * part for part in _parts_s(record)],
        "work": [
            (names(w.request_id), w.num_computed, w.num_new, int(w.samples), w.new_blocks)
            for w in record.work
        ],
        "arrived": [names(request_id) for request_id in record.arrived_ids],
        "preempted": [names(request_id) for request_id in record.preempted_ids],
        "prefill": record.num_prefill_tokens,
        "sampled": record.num_sampled_tokens,
        "running": record.num_running,
        "waiting": record.num_waiting,
        "used": record.num_blocks_used,
        "cached": record.num_blocks_cached,
        "ttfts": [1e3 * time_s for time_s in record.ttfts_s],
        "gaps": [1e3 * time_s for time_s in record.token_gaps_s],
        "blocks": record.changed_blocks if with_blocks else (),
    }


def _parts_s(record: StepRecord) -> tuple[float, float, float, float]:
    return record.plan_s, record.launch_s, record.wait_s, record.commit_s


def _end(end: End, names: _Names) -> dict[str, Any]:
    number, record = end
    return {
        "n": number,
        "id": names(record.request_id),
        "finish": record.finish.value,
        "prompt": record.num_prompt_tokens,
        "cached": record.num_cached_tokens,
        "output": record.num_output_tokens,
        "ms": 1e3 * (record.finished_s - record.accepted_s),
        "blocks": record.changed_blocks,
    }


def _run_lengths(states: bytes) -> list[tuple[int, int]]:
    """[state, how many blocks in a row have it], from block 0 on."""
    return [(state, sum(1 for _ in run)) for state, run in groupby(states)]
