"""The routes that generate text."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from noria.server.anthropic import count_message_tokens, create_message
from noria.server.chat import create_chat_completion
from noria.server.completions import create_completion
from noria.server.endpoint import Handler, endpoint
from noria.server.errors import MESSAGES_PATH
from noria.server.openapi import describe_body
from noria.server.protocol.anthropic import CountTokensRequest, MessagesRequest
from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.completions import CompletionRequest
from noria.server.protocol.responses import ResponsesRequest
from noria.server.responses import create_response
from noria.server.service import Service

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer; a stream of server-sent events when `stream` is true.",
        "content": {"application/json": {}, "text/event-stream": {}},
    },
    400: {"description": "The request is at fault; `error.param` names the field."},
    404: {"description": "The model does not exist."},
    503: {"description": "The server takes no work now; try after `Retry-After` seconds."},
}


# path, what it does, its body, what answers it
_ROUTES: tuple[tuple[str, str, type[BaseModel], Handler], ...] = (
    ("/v1/chat/completions", "Answer a chat", ChatCompletionRequest, create_chat_completion),
    ("/v1/completions", "Continue a text", CompletionRequest, create_completion),
    ("/v1/responses", "Answer a chat (Responses protocol)", ResponsesRequest, create_response),
    (MESSAGES_PATH, "Answer a chat (Messages protocol)", MessagesRequest, create_message),
    (f"{MESSAGES_PATH}/count_tokens", "Length of a prompt", CountTokensRequest, count_message_tokens),
)
BODIES = tuple(body for _, _, body, _ in _ROUTES)


def generation_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["generation"])
    for path, summary, body, handler in _ROUTES:
        routes.add_api_route(
            path,
            endpoint(service, handler),
            methods=["POST"],
            name=handler.__name__,
            summary=summary,
            responses=_RESPONSES,
            openapi_extra=describe_body(body),
        )
    return routes
