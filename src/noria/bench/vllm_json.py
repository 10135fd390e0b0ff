"""The fields that `vllm bench serve` writes, as it defines them, so that what reads its files reads ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from noria.bench.outcome import Outcome
from noria.bench.slo import Slo

_POINTS = (50, 90, 95, 99)


def vllm_fields(outcomes: Sequence[Outcome], slo: Slo) -> dict[str, Any]:
    """Over the whole run, from the actual send, with raw gaps between chunks. Requests in the order of sending."""
    ordered = sorted(outcomes, key=lambda one: one.sent_s)
    answered = [one for one in ordered if one.is_ok]
    begin_s = ordered[0].sent_s if ordered else 0.0
    duration = max((one.end_s for one in ordered), default=0.0) - begin_s
    num_input = sum(one.num_prompt for one in answered)
    num_output = sum(one.num_output for one in answered)
    span = duration or math.nan
    fields: dict[str, Any] = {
        "duration": duration,
        "completed": len(answered),
        "failed": len(ordered) - len(answered),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": len(answered) / span,
        "request_goodput": sum(_is_good(one, slo) for one in answered) / span if slo.is_stated else None,
        "output_throughput": num_output / span,
        "total_token_throughput": (num_input + num_output) / span,
        **_peaks(answered),
        "input_lens": [one.num_prompt for one in ordered],
        "output_lens": [one.num_output if one.is_ok else 0 for one in ordered],
        "ttfts": [one.ttft_s if one.chunk_s else 0.0 for one in ordered],
        "itls": [one.chunk_gaps_s() for one in ordered],
        "latencies": [_latency(one) if one.chunk_s else 0.0 for one in ordered],
        "start_times": [one.sent_s for one in ordered],
        "queue_times": [one.send_lag_s for one in ordered],
        "errors": [one.error for one in ordered],
    }
    for name, values in _series(answered).items():
        fields |= _statistics(name, values)
    return fields


def _latency(one: Outcome) -> float:
    # vLLM's ends with the last chunk that brought a token, not with the stream
    return one.last_s - one.sent_s


def _series(answered: Sequence[Outcome]) -> dict[str, list[float]]:
    return {
        "ttft": [one.ttft_s for one in answered],
        "tpot": [one.tpot_s for one in answered if one.tpot_s is not None],
        "itl": [gap for one in answered for gap in one.chunk_gaps_s()],
        "e2el": [_latency(one) for one in answered],
        "client_queue_time": [one.send_lag_s for one in answered],
        "e2el_including_client_queue": [_latency(one) + one.send_lag_s for one in answered],
    }


def _statistics(name: str, values: Sequence[float]) -> dict[str, float]:
    ms = np.array(values or [0.0]) * 1e3
    points = {f"p{point}_{name}_ms": float(np.percentile(ms, point)) for point in _POINTS}
    return {
        f"mean_{name}_ms": float(ms.mean()),
        f"median_{name}_ms": float(np.median(ms)),
        f"std_{name}_ms": float(ms.std()),
        **points,
    }


def _is_good(one: Outcome, slo: Slo) -> bool:
    """As vLLM: from the actual send."""
    return one.ttft_s <= slo.ttft_s and (one.tpot_s or 0.0) <= slo.tpot_s and _latency(one) <= slo.e2el_s


def _peaks(answered: Sequence[Outcome]) -> dict[str, float]:
    """The busiest second, in chunks and in requests that were under way in it."""
    if not answered:
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0}
    begin_s = min(one.sent_s for one in answered)
    ends = [one.sent_s + _latency(one) - begin_s for one in answered]
    size = math.ceil(max(ends)) + 1
    chunks = np.bincount(
        [int(moment_s - begin_s) for one in answered for moment_s in one.chunk_s], minlength=size
    )
    inside = np.zeros(size, dtype=np.int64)
    for one, end_s in zip(answered, ends, strict=True):
        inside[int(one.sent_s - begin_s) : int(end_s) + 1] += 1
    return {"max_output_tokens_per_s": float(chunks.max()), "max_concurrent_requests": int(inside.max())}
