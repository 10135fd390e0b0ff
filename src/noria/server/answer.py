"""From a turn that has begun to its HTTP answer, whatever the protocol."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response

from noria.server.connection import while_connected
from noria.server.encoders.pacing import paced
from noria.server.encoders.reply import Encoder, gather
from noria.server.protocol.fields import SharedFields
from noria.server.service import Service
from noria.server.sse import EventStream
from noria.server.turn import Turn


async def answer(
    service: Service, request: Request, fields: SharedFields, turn: Turn, encoder: Encoder
) -> Response:
    """In one piece or, where the fields ask for it, as it comes.

    Raises ApiError when the turn fails before anything is sent, ClientDisconnect when the client goes away.
    """
    if not fields.stream:
        return await _whole(request, turn, encoder)
    interval = fields.stream_interval or service.options.answers.stream_interval
    return EventStream(
        turn,
        paced(encoder, interval),
        service.options.sse_keep_alive_interval,
        service.limits.max_unread_tokens,
    )


async def _whole(request: Request, turn: Turn, encoder: Encoder) -> Response:
    try:
        choices = await while_connected(request.receive, gather(turn))
    finally:
        turn.close()
    return Response(orjson.dumps(encoder.whole(choices)), media_type="application/json")
