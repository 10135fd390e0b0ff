"""Where traces and OpenTelemetry's metrics go. Light: OpenTelemetry is imported when an address is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from starlette.applications import Starlette

from noria import __version__
from noria.config.errors import ConfigError
from noria.config.observing import ObservingOptions
from noria.engine.client import EngineClient

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from noria.server.tracing import Report

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
    """model: what reports call the model. Raises ConfigError for an address that is none, and where noria[otel] is not
    installed.
    """
    asked = (
        ("otlp_traces_endpoint", options.otlp_traces_endpoint, start_spans),
        ("otlp_metrics_endpoint", options.otlp_metrics_endpoint, start_metrics),
    )
    reports = [_start(flag, endpoint, start) for flag, endpoint, start in asked if endpoint is not None]
    if not reports:
        return NoTraces()
    from noria.server.tracing import Tracing

    return Tracing(reports, model)


def start_spans(endpoint: str) -> Report:
    """Spans in batches over OTLP/HTTP to `endpoint`. Raises ImportError without noria[otel]."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from noria.server.quiet_export import QuietSpans
    from noria.server.spans import Spans

    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(QuietSpans(OTLPSpanExporter(endpoint=endpoint), endpoint)))
    return Spans(provider)


def start_metrics(endpoint: str) -> Report:
    """Histograms over OTLP/HTTP to `endpoint`, every minute or as OTEL_METRIC_EXPORT_INTERVAL says. Raises ImportError
    without noria[otel].
    """
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from noria.server.gen_ai_metrics import GenAIMetrics
    from noria.server.quiet_export import QuietMetrics

    reader = PeriodicExportingMetricReader(QuietMetrics(endpoint))
    return GenAIMetrics(MeterProvider([reader], _resource(), shutdown_on_exit=False))


def _start(flag: str, endpoint: str, start: Callable[[str], Report]) -> Report:
    if not endpoint.startswith(("http://", "https://")):
        signal = flag.split("_")[1]
        raise ConfigError(
            f"{flag} must begin with http:// or https://, as http://127.0.0.1:4318/v1/{signal}; it is {endpoint!r}"
        )
    try:
        return start(endpoint)
    except ImportError as error:
        raise ConfigError(f"{flag} needs OpenTelemetry ({error}): pip install 'noria[otel]'") from error
    except ValueError as error:
        raise ConfigError(f"{flag}: an OTEL_* setting cannot be used: {error}") from error


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource

    name = os.environ.get("OTEL_SERVICE_NAME", _SERVICE)
    return Resource.create({"service.name": name, "service.version": __version__})
