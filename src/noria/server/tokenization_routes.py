"""The routes about the tokenizer."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from noria.server.endpoint import endpoint
from noria.server.openapi import describe_body
from noria.server.protocol.tokenization import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    TokenizerInfo,
)
from noria.server.service import Service
from noria.server.tokenization import detokenize, tokenize, tokenizer_info

BODIES: tuple[type[BaseModel], ...] = (TokenizeRequest, DetokenizeRequest)


def tokenization_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["tokenizer"])
    routes.add_api_route(
        "/tokenize",
        endpoint(service, tokenize),
        methods=["POST"],
        summary="Token ids of a text or a chat",
        responses={200: {"model": TokenizeResponse}},
        openapi_extra=describe_body(TokenizeRequest),
    )
    routes.add_api_route(
        "/detokenize",
        endpoint(service, detokenize),
        methods=["POST"],
        summary="Text of token ids",
        responses={200: {"model": DetokenizeResponse}},
        openapi_extra=describe_body(DetokenizeRequest),
    )
    if service.options.answers.enable_tokenizer_info_endpoint:
        routes.add_api_route(
            "/tokenizer_info",
            endpoint(service, tokenizer_info),
            summary="Special tokens and chat template",
            responses={200: {"model": TokenizerInfo}},
        )
    return routes
