"""The routes that generate text."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from starlette.requests import Request

from noria.server.chat import create_chat_completion
from noria.server.completions import create_completion
from noria.server.openapi import describe_body
from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.completions import CompletionRequest
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


def generation_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["generation"])

    @routes.post(
        "/v1/chat/completions",
        summary="Answer a chat",
        responses=_RESPONSES,
        openapi_extra=describe_body(ChatCompletionRequest),
    )
    async def chat_completions(request: Request) -> Response:
        return await create_chat_completion(service, request)

    @routes.post(
        "/v1/completions",
        summary="Continue a text",
        responses=_RESPONSES,
        openapi_extra=describe_body(CompletionRequest),
    )
    async def completions(request: Request) -> Response:
        return await create_completion(service, request)

    return routes
