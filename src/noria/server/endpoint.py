"""From a handler that works with the service to what the web framework calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from noria.server.routes import Endpoint
from noria.server.service import Service

Handler = Callable[[Service, Request], Awaitable[Response]]


def endpoint(service: Service, handler: Handler) -> Endpoint:
    async def answer(request: Request) -> Response:
        return await handler(service, request)

    return answer
