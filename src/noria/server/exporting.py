"""Where traces go. Light: OpenTelemetry is imported when an address is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from starlette.applications import Starlette

from noria import __version__
from noria.config.errors import ConfigError
from noria.config.observing import ObservingOptions
from noria.engine.client import EngineClient

if TYPE_CHECKING:
    from noria.server.tracing import Tracing

_SERVICE = "noria"


class Traces(Protocol):
    """What looks at requests from outside their handlers."""

    def watch(self, client: EngineClient) -> EngineClient:
        """The client through which to submit."""
        ...

    def install(self, app: Starlette) -> None:
        """Look at the app's requests; the outermost layer so far."""
        ...

    def close(self) -> None: ...


class NoTraces:
    def watch(self, client: EngineClient) -> EngineClient:
        return client

    def install(self, app: Starlette) -> None:
        pass

    def close(self) -> None:
        pass


def traces_of(options: ObservingOptions, model: str) -> Traces:
    """model: what spans call the model. Raises ConfigError as `start_tracing` does."""
    if options.otlp_traces_endpoint is None:
        return NoTraces()
    return start_tracing(options.otlp_traces_endpoint, model)


def start_tracing(endpoint: str, model: str) -> Tracing:
    """Spans in batches over OTLP/HTTP to `endpoint`. Raises ConfigError where noria[otel] is not installed."""
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"otlp_traces_endpoint must begin with http:// or https://, as http://127.0.0.1:4318/v1/traces; "
            f"it is {endpoint!r}"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"otlp_traces_endpoint needs OpenTelemetry ({error}): pip install 'noria[otel]'"
        ) from error
    from noria.server.quiet_export import QuietExporter
    from noria.server.tracing import Tracing

    name = os.environ.get("OTEL_SERVICE_NAME", _SERVICE)
    provider = TracerProvider(
        resource=Resource.create({"service.name": name, "service.version": __version__}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(
        BatchSpanProcessor(QuietExporter(OTLPSpanExporter(endpoint=endpoint), endpoint))
    )
    return Tracing(provider, model)
