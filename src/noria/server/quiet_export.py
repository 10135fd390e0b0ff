"""A collector that cannot be reached costs one line in the log, and one when it is back. Loaded where one is named."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("noria.server")

# They tell of every try, and of every span that finds no place while a collector is away.
_NOISY = (
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)


class _Losses:
    """Says once that something does not come through, and once that it does again.

    what: in plural. endpoint: how messages call the collector.
    """

    def __init__(self, what: str, endpoint: str) -> None:
        self._what = what
        self._endpoint = endpoint
        self._num_lost = 0  # since the last ones that came through
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def failed(self, count: int) -> None:
        if not self._num_lost:
            logger.warning("%s do not reach %s; it is tried again, quietly", self._what, self._endpoint)
        self._num_lost += count

    def succeeded(self, lost: str) -> None:
        """lost: what became of those that did not come through, with their number as {}."""
        if self._num_lost:
            logger.info("%s reach %s again; %s", self._what, self._endpoint, lost.format(self._num_lost))
        self._num_lost = 0


class QuietSpans(SpanExporter):
    """Exports through another one, which tries again by itself, with longer and longer waits between."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._losses = _Losses("traces", endpoint)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # whatever a client of HTTP may raise
            logger.debug("exporting spans failed: %s", error)
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._losses.succeeded("{} spans are lost")
        else:
            self._losses.failed(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class QuietMetrics(OTLPMetricExporter):
    """Exports again and again all that was counted, unless OTEL_* settings ask for differences."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint)
        self._losses = _Losses("metrics", endpoint)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        try:
            result = super().export(metrics_data, timeout_millis, **kwargs)
        except Exception as error:  # whatever a client of HTTP may raise
            logger.debug("exporting metrics failed: %s", error)
            result = MetricExportResult.FAILURE
        if result is MetricExportResult.SUCCESS:
            self._losses.succeeded("{} exports are lost")
        else:
            self._losses.failed(1)
        return result
