"""Routes about the server itself: health, models, metrics, version, timeline."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import orjson
from fastapi import APIRouter, Response
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from noria import __version__
from noria.server.errors import model_not_found
from noria.server.exposition import Exposition
from noria.server.gate import Gate
from noria.server.health import Watch
from noria.server.served import ServedModel

_FRESH_S = 1.0
_PROBE_RESPONSES: dict[int | str, dict[str, Any]] = {503: {"description": "Not now."}}


def probe_routes(watch: Watch, gate: Gate, exposition: Exposition) -> APIRouter:
    """Open without a key, and answered while the server drains."""
    routes = APIRouter(tags=["server"], default_response_class=Response)

    @routes.get("/health", summary="200 while the engine lives", responses=_PROBE_RESPONSES)
    async def health() -> Response:
        return Response(status_code=200 if watch.is_alive() else 503)

    @routes.get("/ready", summary="200 while new work is taken", responses=_PROBE_RESPONSES)
    async def ready() -> Response:
        return Response(status_code=200 if watch.is_ready() and not gate.is_draining else 503)

    @routes.api_route("/ping", methods=["GET", "HEAD", "POST"], include_in_schema=False)
    async def ping() -> Response:
        return _json({}, 200 if watch.is_alive() else 503)

    @routes.get("/version", summary="Version of the server", response_class=JSONResponse)
    async def server_version() -> Response:
        return _json({"version": __version__})

    routes.add_api_route(
        "/metrics", exposition.answer, summary="Prometheus metrics", response_class=PlainTextResponse
    )
    return routes


def with_heads(routes: APIRouter) -> APIRouter:
    """The same, which answer HEAD by what they say to GET, without its content."""
    for route in list(routes.routes):
        if isinstance(route, APIRoute) and route.methods == {"GET"}:
            routes.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
    return routes


def model_routes(served: ServedModel) -> APIRouter:
    routes = APIRouter(tags=["models"])

    @routes.get(
        "/server_info", summary="What a measurement of this server belongs to", response_class=JSONResponse
    )
    async def server_info() -> Response:
        # From a file of the engine's, which is small.
        return _json({"version": __version__, **served.fingerprint()})

    @routes.get("/v1/models", summary="What is served")
    async def models() -> Response:
        return _json({"object": "list", "data": [served.card(name) for name in served.names]})

    @routes.get(
        "/v1/models/{name:path}",
        summary="One of the models",
        responses={404: {"description": "No such model."}},
    )
    async def model(name: str) -> Response:
        if name not in served.names:
            raise model_not_found(name, served.names)
        return _json(served.card(name))

    return routes


def debug_routes(timeline: Callable[[], dict[str, Any]]) -> APIRouter:
    """timeline: makes a trace of the engine's recent steps and requests."""
    routes = APIRouter(tags=["server"])

    @routes.get("/debug/timeline", summary="Recent steps and requests, as a Chrome trace")
    async def debug_timeline(request: Request) -> Response:
        return Response(await written.latest(), media_type="application/json")

    written = _Written(lambda: orjson.dumps(timeline()))
    return routes


class _Written:
    """What `make` makes, at most once in a second however many ask for it. For the event loop's thread."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._content = b""
        self._made_s = -math.inf
        self._making = asyncio.Lock()

    async def latest(self) -> bytes:
        async with self._making:
            if time.monotonic() - self._made_s > _FRESH_S:
                # Thousands of steps: made and written on another thread, so that streams go on.
                self._content = await asyncio.to_thread(self._make)
                self._made_s = time.monotonic()
            return self._content


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
