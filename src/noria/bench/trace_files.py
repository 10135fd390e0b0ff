"""Writes traces, and says what is in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone

import numpy as np
import orjson

from noria.bench.arrivals import mean_rate
from noria.bench.pieces import Planned, sharing_ratio
from noria.bench.traces import Trace, TraceRow

_EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)  # a trace's instants count from its beginning
_QUANTILES = (0, 50, 90, 99, 100)


def lines_of(trace: Trace, form: str, block_size: int) -> Iterator[str]:
    """Of a file in one of `FORMS`. block_size: tokens that a hash of Mooncake stands for."""
    return FORMS[form](trace.rows, block_size)


def _azure(rows: Sequence[TraceRow], block_size: int) -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens"
    for row in rows:
        moment = _EPOCH + timedelta(seconds=row.time_s)
        yield f"{moment:%Y-%m-%d %H:%M:%S.%f}0,{row.num_prompt},{row.num_output}"


def _mooncake(rows: Sequence[TraceRow], block_size: int) -> Iterator[str]:
    # A hash stands for a block and for all before it, so a number is given to every chain of blocks.
    numbers: dict[tuple[object, ...], int] = {}
    for row in rows:
        hash_ids: list[int] = []
        for block in _blocks(row, block_size):
            chain = (hash_ids[-1] if hash_ids else None, *block)
            hash_ids.append(numbers.setdefault(chain, len(numbers)))
        fields = {
            "timestamp": round(row.time_s * 1000),
            "input_length": row.num_prompt,
            "output_length": row.num_output,
            "hash_ids": hash_ids,
        }
        yield orjson.dumps(fields).decode()


def _blocks(row: TraceRow, block_size: int) -> Iterator[tuple[object, ...]]:
    """What each block of a prompt is made of: (name, from, to) of pieces."""
    block: list[object] = []
    left = block_size
    for piece in row.pieces:
        start = 0
        while start < piece.num_tokens:
            count = min(left, piece.num_tokens - start)
            block.append((piece.name, start, start + count))
            start += count
            left -= count
            if not left:
                yield tuple(block)
                block, left = [], block_size
    if block:
        yield tuple(block)


def _noria(rows: Sequence[TraceRow], block_size: int) -> Iterator[str]:
    for row in rows:
        fields = {
            "arrival_s": row.time_s,
            "num_prompt": row.num_prompt,
            "num_output": row.num_output,
            "session": row.session,
            "turn": row.turn,
            "pieces": [[piece.name, piece.num_tokens] for piece in row.pieces],
        }
        yield orjson.dumps(fields).decode()


FORMS: dict[str, Callable[[Sequence[TraceRow], int], Iterator[str]]] = {
    "azure": _azure,
    "mooncake": _mooncake,
    "noria": _noria,
}


def describe(trace: Trace) -> list[tuple[str, str]]:
    """Names and values, in words."""
    times = np.array([row.time_s for row in trace.rows])
    between = np.diff(times)
    planned = [Planned(place, row.pieces, row.num_output) for place, row in enumerate(trace.rows)]
    sessions = {row.session for row in trace.rows if row.session is not None}
    found = [
        ("kind", trace.kind),
        ("requests", f"{len(trace.rows)}, {trace.num_left_out} rows left out"),
        ("time", f"{times[-1]:.1f} s"),
        ("rate", f"{mean_rate(times):.3g} requests/s"),
        ("prompt tokens", _words([row.num_prompt for row in trace.rows])),
        ("output tokens", _words([row.num_output for row in trace.rows])),
        ("shared prefixes", f"{sharing_ratio(planned):.1%} of prompt tokens"),
        ("conversations", str(len(sessions)) if sessions else "not told"),
    ]
    if len(between) and between.mean() > 0:
        variation = float(between.std() / between.mean())
        shape = f"as gamma with --burstiness {variation**-2:.2g}" if variation > 0 else "evenly"
        found.insert(4, ("variation of intervals", f"{variation:.2f} (1 is Poisson), {shape}"))
    return found


def _words(values: Sequence[int]) -> str:
    points = np.percentile(np.array(values), _QUANTILES)
    named = ", ".join(f"P{point} {value:.0f}" for point, value in zip(_QUANTILES, points, strict=True))
    return f"mean {np.mean(values):.0f}, {named}"
