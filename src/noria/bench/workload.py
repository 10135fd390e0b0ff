"""From what a user asks for to the list of requests that shall be sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noria.bench.lengths import Lengths, parse_lengths
from noria.bench.pieces import Piece, Planned, sharing_ratio, with_lengths
from noria.bench.stats import Values
from noria.bench.synthetic import read_synthetic
from noria.bench.texts import Count, read_sharegpt
from noria.bench.traces import Trace, Units, read_trace, sniff
from noria.config.benching import WorkloadOptions
from noria.config.errors import ConfigError

_QUANTILES = (0, 25, 50, 75, 90, 95, 99, 100)


@dataclass(frozen=True, slots=True)
class Workload:
    """times_s: a trace's own instants, None for a load that has none. kind: in words. num_cut: requests that were
    longer than the model or the user allows."""

    kind: str
    requests: tuple[Planned, ...]
    times_s: Values | None = None
    num_cut: int = 0
    num_left_out: int = 0

    def about(self) -> dict[str, Any]:
        """What identifies it in a fingerprint: lengths by quantiles, and how much prompts share."""
        outputs = [request.num_output for request in self.requests]
        sessions = {request.session for request in self.requests if request.session is not None}
        return {
            "kind": self.kind,
            "num_requests": len(self.requests),
            "prompt_tokens": _quantiles(with_lengths(self.requests)),
            "output_tokens": _quantiles(outputs),
            "prefix_sharing_ratio": round(sharing_ratio(self.requests), 4),
            "num_sessions": len(sessions),
            "num_cut": self.num_cut,
            "num_left_out": self.num_left_out,
        }


@dataclass(frozen=True, slots=True)
class Room:
    """What fits. max_model_len: prompt and output together, None where the server does not say."""

    max_model_len: int | None = None
    max_prompt: int | None = None
    max_output: int | None = None

    def fit(self, request: Planned) -> Planned:
        num_output = (
            request.num_output if self.max_output is None else min(request.num_output, self.max_output)
        )
        if self.max_model_len is not None:
            num_output = min(num_output, max(1, self.max_model_len - 1))
        limits = [] if self.max_prompt is None else [self.max_prompt]
        if self.max_model_len is not None:
            limits.append(max(1, self.max_model_len - num_output))
        pieces = _cut(request.pieces, min(limits)) if limits else request.pieces
        if pieces == request.pieces and num_output == request.num_output:
            return request
        return replace(request, pieces=pieces, num_output=num_output)


def _cut(pieces: tuple[Piece, ...], limit: int) -> tuple[Piece, ...]:
    kept: list[Piece] = []
    for piece in pieces:
        if limit <= 0:
            break
        kept.append(piece if piece.num_tokens <= limit else replace(piece, num_tokens=limit))
        limit -= piece.num_tokens
    return tuple(kept)


def make_workload(
    options: WorkloadOptions, count: int | None, max_model_len: int | None, count_tokens: Count | None
) -> Workload:
    """count: of requests, None for all of a trace. count_tokens: of a text, where a tokenizer is to be had.

    Raises ConfigError.
    """
    room = Room(max_model_len, options.max_prompt_tokens, options.max_output_tokens)
    if options.trace is None:
        settings = options if options.synthetic is None else read_synthetic(options.synthetic, options)
        return _fitted(Workload("synthetic", tuple(_made_up(settings, count or 1000))), room)
    kind = sniff(options.trace) if options.trace_format == "auto" else options.trace_format
    if kind == "sharegpt":
        planned = read_sharegpt(options.trace, count, room.max_model_len, count_tokens)
        return _fitted(Workload("sharegpt", tuple(planned)), room)
    trace = read_trace(options.trace, kind, Units(options.trace_block_size, options.trace_time_unit))
    return _fitted(_of_trace(trace, count), room)


def _of_trace(trace: Trace, count: int | None) -> Workload:
    rows = trace.rows[:count]
    requests = tuple(
        Planned(index, row.pieces, row.num_output, session=row.session, turn=row.turn)
        for index, row in enumerate(rows)
    )
    times = np.array([row.time_s for row in rows])
    return Workload(trace.kind, requests, times, num_left_out=trace.num_left_out)


def _fitted(workload: Workload, room: Room) -> Workload:
    fitted = tuple(room.fit(request) for request in workload.requests)
    num_cut = sum(new is not old for new, old in zip(fitted, workload.requests, strict=True))
    return replace(workload, requests=fitted, num_cut=num_cut)


@dataclass(frozen=True, slots=True)
class _Shape:
    prompts: Lengths
    outputs: Lengths
    turns: Lengths


def _made_up(options: WorkloadOptions, count: int) -> Iterator[Planned]:
    if options.prefix_sharing < 1 and not options.prefix_tokens:
        raise ConfigError(
            "prefix_sharing says how many requests share a prefix; --prefix-tokens says how long it is"
        )
    shape = _Shape(
        parse_lengths(options.prompt_tokens, "prompt_tokens"),
        parse_lengths(options.output_tokens, "output_tokens"),
        parse_lengths(options.turns, "turns"),
    )
    random = np.random.default_rng([options.bench_seed, 0x90AD])
    index = number = 0
    while index < count:
        for planned in _session(options, shape, random, number):
            if index < count:
                yield replace(planned, index=index)
            index += 1
        number += 1


def _session(
    options: WorkloadOptions, shape: _Shape, random: np.random.Generator, number: int
) -> Iterator[Planned]:
    said = list(_prefix(options, random, number))
    num_turns = shape.turns.draw(random)
    for turn in range(num_turns):
        said.append(Piece(f"user {number}.{turn}", shape.prompts.draw(random)))
        num_output = shape.outputs.draw(random)
        session = f"s{number}" if num_turns > 1 else None
        pause_s = float(random.exponential(options.pause)) if turn else 0.0
        yield Planned(0, tuple(said), num_output, session=session, turn=turn, pause_s=pause_s)
        said.append(Piece(f"answer {number}.{turn}", num_output, role="assistant"))


def _prefix(options: WorkloadOptions, random: np.random.Generator, number: int) -> Iterator[Piece]:
    if not options.prefix_tokens:
        return
    is_shared = random.random() < options.prefix_sharing
    name = f"group {random.integers(options.prefix_groups)}" if is_shared else f"own {number}"
    yield Piece(name, options.prefix_tokens, role="system")


def _quantiles(values: Sequence[int]) -> dict[str, float]:
    """Mean and quantiles; empty for no values."""
    if not values:
        return {}
    points = np.percentile(np.array(values), _QUANTILES)
    named = {f"p{point}": round(float(value), 2) for point, value in zip(_QUANTILES, points, strict=True)}
    return {"mean": round(float(np.mean(values)), 2), **named}
