"""What `/metrics` answers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response


class Exposition:
    """All series of this server: those of the given collectors, and of the process and its garbage collector."""

    def __init__(self, *collectors: Collector) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    async def answer(self, request: Request) -> Response:
        """In the text format, or OpenMetrics where the Accept header prefers it."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={"content-type": content_type})
