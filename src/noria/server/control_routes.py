"""Routes that look at the requests which run, and end them."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from noria.config.tenant import ANYBODY, Tenant
from noria.server.bridge import Bridge
from noria.server.fleet import Peers
from noria.server.operations import JSON, Operation, Reply
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


def control_routes(bridge: Bridge, peers: Peers) -> list[Operation]:
    """Of the requests of this process and of its peers."""
    peers.on_question(_LOAD, lambda content: orjson.dumps(bridge.num_requests))
    peers.on_question(_ABORT, lambda content: orjson.dumps(bridge.abort(*orjson.loads(content))))

    async def load(request: Request) -> Response:
        elsewhere = sum(map(orjson.loads, await peers.ask(_LOAD, b"")))
        return _json({"server_load": bridge.num_requests + elsewhere})

    async def abort_requests(request: Request) -> Response:
        fields = await read_body(request, AbortRequest) if await request.body() else AbortRequest()
        tenant: Tenant = getattr(request.state, "tenant", ANYBODY)
        meant = (fields.request_ids or None, tenant.name)
        ended = bridge.abort(*meant)
        for answer in await peers.ask(_ABORT, orjson.dumps(meant)):
            ended += orjson.loads(answer)
        return _json({"cancelled_request_ids": list(dict.fromkeys(ended))})

    return [
        Operation(
            "server", "GET", "/load", load, "Requests being generated for", replies={200: Reply(model=Load)}
        ),
        Operation(
            "server",
            "POST",
            "/abort_requests",
            abort_requests,
            "End running requests of one's own with what they have",
            AbortRequest,
            is_body_required=False,
            replies={200: Reply(model=AbortResponse)},
        ),
    ]


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type=JSON)
