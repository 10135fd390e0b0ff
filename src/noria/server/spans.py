"""OpenTelemetry spans, one for each request that generates. Loaded only where traces are asked for.

Names: the semantic conventions for generative AI (gen_ai.*), and the latencies as `vllm serve` names them. No text of
a prompt or an answer is ever part of a span.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from noria.server.span_attributes import attributes_of
from noria.server.tracing import RequestTrace


class Spans:
    """A Report that makes a span of each request, under the one that its headers name."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("noria")

    def tell(self, trace: RequestTrace) -> None:
        span = self._tracer.start_span(
            f"{trace.operation} {trace.model}",
            context=TraceContextTextMapPropagator().extract(trace.parent),
            kind=SpanKind.SERVER,
            start_time=trace.began_ns,
            attributes=attributes_of(trace),
        )
        # What the client did wrong is no fault of the server's.
        if trace.error is not None and not 400 <= trace.status < 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(trace.ended_ns)

    def close(self) -> None:
        self._provider.shutdown()
