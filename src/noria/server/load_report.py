"""What the server tells load balancers of its load: GET /load, and a header that a request may ask for."""

from __future__ import annotations

from collections.abc import Callable

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noria.engine.messages import EngineStats
from noria.server.middleware import HttpLayer

ASKED_BY = "endpoint-load-metrics-format"
_ANSWER = "endpoint-load-metrics"


class LoadReportMiddleware(HttpLayer):
    """Answers `endpoint-load-metrics-format: TEXT` or `JSON` with a header of Open Request Cost Aggregation (ORCA)."""

    sees_probes = False

    def __init__(self, app: ASGIApp, stats: Callable[[], EngineStats]) -> None:
        super().__init__(app)
        self._stats = stats

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = Headers(scope=scope).get(ASKED_BY, "").upper()
        if form not in ("TEXT", "JSON"):
            await self._app(scope, receive, send)
            return

        async def send_with_load(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[_ANSWER] = f"{form} {_report(self._stats(), form)}"
            await send(message)

        await self._app(scope, receive, send_with_load)


def _report(stats: EngineStats, form: str) -> str:
    metrics = {
        "kv_cache_usage_perc": stats.num_blocks_used / max(1, stats.num_blocks),
        "num_requests_waiting": stats.num_waiting,
    }
    if form == "JSON":
        return orjson.dumps({"named_metrics": metrics}).decode()
    return ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
