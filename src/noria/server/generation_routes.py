"""The routes that generate text."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from noria.server.anthropic import count_message_tokens, create_message
from noria.server.chat import create_chat_completion
from noria.server.completions import create_completion
from noria.server.endpoint import Handler, endpoint
from noria.server.errors import MESSAGES_PATH, is_anthropic_path
from noria.server.operations import JSON, ErrorReply, Operation, Reply
from noria.server.protocol.anthropic import CountTokensRequest, MessagesRequest
from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.completions import CompletionRequest
from noria.server.protocol.responses import ResponsesRequest
from noria.server.responses import create_response
from noria.server.service import Service

_TEXT = {
    200: Reply(
        "The answer; a stream of server-sent events when `stream` is true.", (JSON, "text/event-stream")
    )
}


class MessagesErrorDetails(BaseModel):
    type: str
    message: str


class MessagesErrorReply(BaseModel):
    """Of the Messages protocol."""

    type: Literal["error"]
    error: MessagesErrorDetails


# path, what it does, its body, what answers it
_ROUTES: tuple[tuple[str, str, type[BaseModel], Handler], ...] = (
    ("/v1/chat/completions", "Answer a chat", ChatCompletionRequest, create_chat_completion),
    ("/v1/completions", "Continue a text", CompletionRequest, create_completion),
    ("/v1/responses", "Answer a chat (Responses protocol)", ResponsesRequest, create_response),
    (MESSAGES_PATH, "Answer a chat (Messages protocol)", MessagesRequest, create_message),
    (f"{MESSAGES_PATH}/count_tokens", "Length of a prompt", CountTokensRequest, count_message_tokens),
)


def generation_routes(service: Service) -> list[Operation]:
    return [
        Operation(
            "generation",
            "POST",
            path,
            endpoint(service, handler),
            summary,
            body,
            replies=_TEXT,
            error=MessagesErrorReply if is_anthropic_path(path) else ErrorReply,
        )
        for path, summary, body, handler in _ROUTES
    ]
