"""What `/metrics` answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

_TEXT = "text/plain; version=0.0.4; charset=utf-8"

# As they are. Every name here is one that any reader understands, yet where a reader does not say that it takes any,
# the library would write a colon as an underscore, in samples alone.
_NAMES = "allow-utf-8"


class Exposition:
    """All series of this server: those of the given collectors.

    refresh: waited for before they are asked.
    """

    def __init__(self, *collectors: Collector, refresh: Callable[[], Awaitable[None]] | None = None) -> None:
        self._refresh = refresh
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)

    async def answer(self, request: Request) -> Response:
        """In the text format, or OpenMetrics where the Accept header prefers it."""
        if self._refresh is not None:
            await self._refresh()
        if _wants_openmetrics(request.headers.get("accept", "")):
            content, content_type = generate_openmetrics(self._registry, _NAMES), OPENMETRICS
        else:
            content, content_type = generate_latest(self._registry, _NAMES), _TEXT
        return Response(content, headers={"content-type": content_type})


def _wants_openmetrics(accept: str) -> bool:
    """Whether that comes before plain text; clients name what they prefer first."""
    for accepted in accept.split(","):
        kind = accepted.partition(";")[0].strip()
        if kind in ("application/openmetrics-text", "text/plain"):
            return kind == "application/openmetrics-text"
    return False
