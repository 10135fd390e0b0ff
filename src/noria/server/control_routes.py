"""Routes that look at the requests which run, and end them."""

from __future__ import annotations

import orjson
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from noria.config.tenant import ANYBODY, Tenant
from noria.server.bridge import Bridge
from noria.server.fleet import Peers
from noria.server.openapi import describe_body
from noria.server.protocol.body import read_body

_LOAD, _ABORT = "load", "abort"  # what processes ask each other


class AbortRequest(BaseModel):
    """request_ids: ids of replies, or what their requests had in X-Request-Id or request_id; none: all of them."""

    model_config = ConfigDict(extra="allow")

    request_ids: list[str] | None = None


class AbortResponse(BaseModel):
    """The ids of the replies that were cut short: the finish reason of each is `abort`."""

    cancelled_request_ids: list[str]


class Load(BaseModel):
    server_load: int


def control_routes(bridge: Bridge, peers: Peers) -> APIRouter:
    """Of the requests of this process and of its peers."""
    routes = APIRouter(tags=["server"])
    peers.on_question(_LOAD, lambda content: orjson.dumps(bridge.num_requests))
    peers.on_question(_ABORT, lambda content: orjson.dumps(bridge.abort(*orjson.loads(content))))

    @routes.get("/load", summary="Requests being generated for", responses={200: {"model": Load}})
    async def load() -> Response:
        elsewhere = sum(map(orjson.loads, await peers.ask(_LOAD, b"")))
        content = {"server_load": bridge.num_requests + elsewhere}
        return Response(orjson.dumps(content), media_type="application/json")

    @routes.post(
        "/abort_requests",
        summary="End running requests of one's own with what they have",
        responses={200: {"model": AbortResponse}},
        openapi_extra=describe_body(AbortRequest, is_required=False),
    )
    async def abort_requests(request: Request) -> Response:
        fields = await read_body(request, AbortRequest) if await request.body() else AbortRequest()
        tenant: Tenant = getattr(request.state, "tenant", ANYBODY)
        meant = (fields.request_ids or None, tenant.name)
        ended = bridge.abort(*meant)
        for answer in await peers.ask(_ABORT, orjson.dumps(meant)):
            ended += orjson.loads(answer)
        content = {"cancelled_request_ids": list(dict.fromkeys(ended))}
        return Response(orjson.dumps(content), media_type="application/json")

    return routes
