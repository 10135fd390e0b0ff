"""The dashboard's routes: the page and its files, and the events that it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from noria import __version__
from noria.config.extras import plotly
from noria.engine.client import EngineClient
from noria.server.dashboard.assets import EVENTS_PATH, FILES, PLOTLY_PATH, asset
from noria.server.dashboard.events import Audience, WatchResponse
from noria.server.dashboard.feed import Feed
from noria.server.errors import ApiError
from noria.server.gate import Gate
from noria.server.routes import PathRoute
from noria.server.served import ServedModel

INSTALL = "pip install 'noria[dashboard]'"

# Nothing comes from anywhere else, and no script is written into the page. Styles are: by plotly, as it draws.
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # asked for again each time; answered with 304 while it is the same
}
# Whoever asks at the root and is no browser asks whether a server is there, in the way that Ollama's clients do.
_GREETING = "Ollama is running"
_SCRIPT_HEADERS = {
    "cache-control": "public, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
}


def dashboard_routes(client: EngineClient, served: ServedModel, gate: Gate) -> list[PathRoute]:
    """Adds a listener to the engine's recorder."""
    feed = Feed()
    client.recorder.add_listener(feed)
    audience = Audience(feed, client.stats, gate, lambda: _about(served))

    async def script(request: Request) -> Response:
        found = plotly()
        if found is None:
            raise ApiError(f"Plots need plotly on the server: {INSTALL}", 404)
        # The page asks for it with its version in the address, so it may be kept for ever.
        return FileResponse(
            found.script, media_type="text/javascript; charset=utf-8", headers=_SCRIPT_HEADERS
        )

    async def events(request: Request) -> Response:
        return WatchResponse(audience)

    pages = [PathRoute(path, _page(path)) for path in FILES]
    return [*pages, PathRoute(PLOTLY_PATH, script), PathRoute(EVENTS_PATH, events)]


def _page(path: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        if path == "/" and "text/html" not in request.headers.get("accept", ""):
            return Response(_GREETING, headers={"vary": "accept"}, media_type="text/plain")
        found = asset(path)
        headers = {**_PAGE_HEADERS, "etag": found.etag, "vary": "accept"}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.media_type)

    return page


def _about(served: ServedModel) -> dict[str, Any]:
    found = plotly()
    return {
        "version": __version__,
        "model": served.name,
        "max_model_len": served.max_model_len,
        "block_size": int(served.cache_labels.get("block_size", 0)),
        "plotly": found.version if found is not None else None,
        "install": INSTALL,
    }
