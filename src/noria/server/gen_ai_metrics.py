"""OpenTelemetry's metrics of a server of generative AI: gen_ai.server.*. Loaded only where they are asked for.

Names, units, attributes and bucket boundaries: the semantic conventions for generative AI.
"""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider

from noria.engine.messages import RequestRecord
from noria.server.span_attributes import PROVIDER
from noria.server.tracing import RequestTrace

DURATION_BUCKETS_S = tuple(0.01 * 2**power for power in range(14))
PER_TOKEN_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
FIRST_TOKEN_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1),
    *(0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)


class GenAIMetrics:
    """A Report that counts each request, and each sequence of those that succeeded, into histograms."""

    def __init__(self, provider: MeterProvider) -> None:
        self._provider = provider
        meter = provider.get_meter("noria")
        self._duration = meter.create_histogram(
            "gen_ai.server.request.duration",
            "s",
            "From a request's arrival to the end of its answer",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._per_token = meter.create_histogram(
            "gen_ai.server.time_per_output_token",
            "s",
            "Of the tokens after a sequence's first one, their mean; of answers that succeeded",
            explicit_bucket_boundaries_advisory=PER_TOKEN_BUCKETS_S,
        )
        self._first_token = meter.create_histogram(
            "gen_ai.server.time_to_first_token",
            "s",
            "From the engine's taking a sequence to its first token; of answers that succeeded",
            explicit_bucket_boundaries_advisory=FIRST_TOKEN_BUCKETS_S,
        )

    def tell(self, trace: RequestTrace) -> None:
        named = {
            "gen_ai.operation.name": trace.operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": trace.model,
            "gen_ai.response.model": trace.model,
        }
        failed = {} if trace.error is None else {"error.type": trace.error}
        if trace.ended_ns is not None:
            seconds = max(0, trace.ended_ns - trace.began_ns) / 1e9  # the wall clock may have been set back
            self._duration.record(seconds, named | failed)
        for record in () if failed else trace.records.values():
            self._tell_sequence(record, named)

    def close(self) -> None:
        self._provider.shutdown()

    def _tell_sequence(self, record: RequestRecord, named: dict[str, str]) -> None:
        if record.first_token_s is None or record.last_token_s is None:
            return  # nothing was generated
        self._first_token.record(record.first_token_s - record.accepted_s, named)
        num_later = record.num_output_tokens - 1
        if num_later > 0:
            self._per_token.record((record.last_token_s - record.first_token_s) / num_later, named)
