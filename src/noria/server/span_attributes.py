"""What a span says of a request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from noria.config.pooling import PoolingParams
from noria.engine.messages import EngineRequest, RequestRecord

if TYPE_CHECKING:
    from noria.server.tracing import RequestTrace

Value = str | bool | int | float | Sequence[str]

PROVIDER = "noria"
_LATEST_ALONE = "gen_ai_latest_experimental"  # in OTEL_SEMCONV_STABILITY_OPT_IN: without the older names


def attributes_of(trace: RequestTrace) -> dict[str, Value]:
    """By name; what the request did not come to is left out."""
    found: dict[str, Value | None] = {
        "gen_ai.operation.name": trace.operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": trace.model,
        "gen_ai.request.stream": trace.is_stream or None,
        "http.response.status_code": trace.status or None,
        "error.type": trace.error,
    }
    if trace.sequences:
        found |= _asked(trace.sequences)
        found |= _answered(trace)
    records = list(trace.records.values())
    if records:
        found |= _used(trace.sequences, trace.records)
        if _LATEST_ALONE not in os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(","):
            found |= _older_names(found, records)
    return {name: value for name, value in found.items() if value is not None}


def _asked(sequences: Sequence[EngineRequest]) -> dict[str, Value | None]:
    params = sequences[0].params
    if isinstance(params, PoolingParams):
        return {"gen_ai.embeddings.dimension.count": params.dimensions}
    return {
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k or None,
        "gen_ai.request.stop_sequences": tuple(params.stop) or None,
        "gen_ai.request.seed": params.seed,
        "gen_ai.request.choice.count": params.n if params.n > 1 else None,
    }


def _answered(trace: RequestTrace) -> dict[str, Value | None]:
    in_order = [trace.records.get(request.request_id) for request in trace.sequences]
    first_s = None
    if trace.is_stream and trace.first_chunk_ns is not None:
        first_s = (trace.first_chunk_ns - trace.began_ns) / 1e9
    return {
        # An engine's request id is the reply's, then what makes it and its choices unique there.
        "gen_ai.response.id": trace.sequences[0].request_id.rpartition(".")[0],
        "gen_ai.response.model": trace.model,
        "gen_ai.response.finish_reasons": [record.finish.value for record in in_order if record] or None,
        "gen_ai.response.time_to_first_chunk": first_s,
    }


def _used(sequences: Sequence[EngineRequest], records: dict[str, RequestRecord]) -> dict[str, Value | None]:
    # A prompt counts once, however many choices it has: choices of a prompt follow each other.
    firsts = [request.request_id for request in sequences[:: sequences[0].params.n]]
    prompts = [records[name] for name in firsts if name in records]
    return {
        "gen_ai.usage.input_tokens": sum(record.num_prompt_tokens for record in prompts),
        "gen_ai.usage.output_tokens": sum(record.num_output_tokens for record in records.values()),
        "gen_ai.usage.cache_read.input_tokens": sum(record.num_cached_tokens for record in prompts),
    }


def _older_names(found: dict[str, Value | None], records: Sequence[RequestRecord]) -> dict[str, Value | None]:
    """Token counts and latencies in seconds; of several sequences, from the first to begin to the last to end."""
    accepted_s = min(record.accepted_s for record in records)
    scheduled_s = _first(record.first_scheduled_s for record in records)
    token_s = _first(record.first_token_s for record in records)
    last_s = max((record.last_token_s for record in records if record.last_token_s is not None), default=None)
    return {
        "gen_ai.usage.prompt_tokens": found["gen_ai.usage.input_tokens"],
        "gen_ai.usage.completion_tokens": found["gen_ai.usage.output_tokens"],
        "gen_ai.latency.time_in_queue": _between(accepted_s, scheduled_s),
        "gen_ai.latency.time_to_first_token": _between(accepted_s, token_s),
        "gen_ai.latency.e2e": max(record.finished_s for record in records) - accepted_s,
        "gen_ai.latency.time_in_model_prefill": _between(scheduled_s, token_s),
        "gen_ai.latency.time_in_model_decode": _between(token_s, last_s),
    }


def _first(instants: Iterable[float | None]) -> float | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s
