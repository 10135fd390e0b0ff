"""Routes that look at the requests which run, and end them."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from noria.config.tenant import ANYBODY, Tenant
from noria.server.bridge import Bridge
from noria.server.openapi import describe_body
from noria.server.protocol.body import read_body


class AbortRequest(BaseModel):
    """request_ids: ids of replies, or what their requests had in X-Request-Id or request_id; none: all of them."""

    model_config = ConfigDict(extra="allow")

    request_ids: list[str] | None = None


class AbortResponse(BaseModel):
    """The ids of the replies that were cut short: the finish reason of each is `abort`."""

    cancelled_request_ids: list[str]


class Load(BaseModel):
    server_load: int


def control_routes(bridge: Bridge) -> APIRouter:
    routes = APIRouter(tags=["server"])

    @routes.get("/load", summary="Requests being generated for", responses={200: {"model": Load}})
    async def load() -> Response:
        return Response(orjson.dumps({"server_load": bridge.num_requests}), media_type="application/json")

    @routes.post(
        "/abort_requests",
        summary="End running requests of one's own with what they have",
        responses={200: {"model": AbortResponse}},
        openapi_extra=describe_body(AbortRequest),
    )
    async def abort_requests(request: Request) -> Response:
        fields = await read_body(request, AbortRequest)
        tenant: Tenant = getattr(request.state, "tenant", ANYBODY)
        ended = bridge.abort(fields.request_ids or None, tenant.name)
        return Response(orjson.dumps({"cancelled_request_ids": ended}), media_type="application/json")

    return routes
