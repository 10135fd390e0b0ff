"""A collector that cannot be reached costs one line in the log, and one when it is back. Loaded with traces alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("noria.server")

# They tell of every try, and of every span that finds no place while a collector is away.
_NOISY = ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk._shared_internal")


class QuietExporter(SpanExporter):
    """Exports through another one, which tries again by itself, with longer and longer waits between.

    endpoint: how messages call the collector.
    """

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._num_lost = 0  # spans since the last ones that came through
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # whatever a client of HTTP may raise
            logger.debug("exporting spans failed: %s", error)
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            if not self._num_lost:
                logger.warning("traces do not reach %s; it is tried again, quietly", self._endpoint)
            self._num_lost += len(spans)
        elif self._num_lost:
            logger.info("traces reach %s again; %d spans are lost", self._endpoint, self._num_lost)
            self._num_lost = 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)
