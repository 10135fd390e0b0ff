"""Routes about the server itself: health, models, metrics, version, timeline."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from noria import __version__
from noria.server.errors import model_not_found
from noria.server.exposition import Exposition
from noria.server.gate import Gate
from noria.server.health import Watch
from noria.server.operations import JSON, Operation, Reply
from noria.server.routes import PathRoute
from noria.server.served import ServedModel

_FRESH_S = 1.0
_PROBED = {200: Reply("Yes.", ()), 503: Reply("Not now.", ())}
_TEXT = {200: Reply(media_types=("text/plain",))}


def probe_routes(watch: Watch, gate: Gate, exposition: Exposition) -> list[Operation]:
    """Open without a key, and answered while the server drains."""

    async def health(request: Request) -> Response:
        return Response(status_code=200 if watch.is_alive() else 503)

    async def ready(request: Request) -> Response:
        return Response(status_code=200 if watch.is_ready() and not gate.is_draining else 503)

    async def server_version(request: Request) -> Response:
        return _json({"version": __version__})

    return [
        Operation("server", "GET", "/health", health, "200 while the engine lives", replies=_PROBED),
        Operation("server", "GET", "/ready", ready, "200 while new work is taken", replies=_PROBED),
        Operation("server", "GET", "/version", server_version, "Version of the server"),
        Operation("server", "GET", "/metrics", exposition.answer, "Prometheus metrics", replies=_TEXT),
    ]


def ping_route(watch: Watch) -> PathRoute:
    """What SageMaker asks for; it has no place on the API's page."""

    async def ping(request: Request) -> Response:
        return _json({}, 200 if watch.is_alive() else 503)

    return PathRoute("/ping", ping, ("GET", "POST"))


def model_routes(served: ServedModel) -> list[Operation]:
    async def server_info(request: Request) -> Response:
        # From a file of the engine's, which is small.
        return _json({"version": __version__, **served.fingerprint()})

    async def models(request: Request) -> Response:
        return _json({"object": "list", "data": [served.card(name) for name in served.names]})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in served.names:
            raise model_not_found(name, served.names)
        return _json(served.card(name))

    return [
        Operation(
            "models", "GET", "/server_info", server_info, "What a measurement of this server belongs to"
        ),
        Operation("models", "GET", "/v1/models", models, "What is served"),
        Operation("models", "GET", "/v1/models/{name:path}", model, "One of the models"),
    ]


def debug_routes(timeline: Callable[[], dict[str, Any]]) -> list[Operation]:
    """timeline: makes a trace of the engine's recent steps and requests."""

    async def debug_timeline(request: Request) -> Response:
        return Response(await written.latest(), media_type=JSON)

    written = _Written(lambda: orjson.dumps(timeline()))
    summary = "Recent steps and requests, as a Chrome trace"
    return [Operation("server", "GET", "/debug/timeline", debug_timeline, summary)]


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
    return Response(orjson.dumps(content), status, media_type=JSON)
