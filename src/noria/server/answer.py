"""From a turn that has begun to its HTTP answer, whatever the protocol."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response

from noria.server.connection import while_connected
from noria.server.encoders.reply import Encoder, gather
from noria.server.sse import EventStream
from noria.server.turn import Turn


def stream(turn: Turn, encoder: Encoder, keep_alive_s: float) -> Response:
    """The answer as it comes."""
    return EventStream(turn, encoder, keep_alive_s)


async def whole(request: Request, turn: Turn, encoder: Encoder) -> Response:
    """The answer in one piece. Raises ApiError when the turn fails, ClientDisconnect when the client goes away."""
    try:
        choices = await while_connected(request.receive, gather(turn))
    finally:
        turn.close()
    return Response(orjson.dumps(encoder.whole(choices)), media_type="application/json")
