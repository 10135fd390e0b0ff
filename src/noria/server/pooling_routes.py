"""The routes that read texts and continue none."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from noria.server.embeddings import classify, create_embeddings, pool
from noria.server.endpoint import Handler, endpoint
from noria.server.openapi import describe_body
from noria.server.protocol.pooling import (
    ClassificationRequest,
    EmbeddingRequest,
    PoolingRequest,
    RerankRequest,
    ScoreRequest,
)
from noria.server.scoring import rerank, score
from noria.server.service import Service

# paths, what they do, their body, what answers them
_ROUTES: tuple[tuple[tuple[str, ...], str, type[BaseModel], Handler], ...] = (
    (("/v1/embeddings",), "Vectors of texts", EmbeddingRequest, create_embeddings),
    (("/pooling",), "What the model makes of texts", PoolingRequest, pool),
    (("/classify",), "Labels of texts", ClassificationRequest, classify),
    (("/score", "/v1/score"), "How well texts fit each other", ScoreRequest, score),
    (("/rerank", "/v1/rerank", "/v2/rerank"), "Documents by how well they fit", RerankRequest, rerank),
)
BODIES = tuple(body for _, _, body, _ in _ROUTES)
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "An entry for each text.", "content": {"application/json": {}}}
}


def pooling_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["pooling"])
    for paths, summary, body, handler in _ROUTES:
        for path in paths:
            routes.add_api_route(
                path,
                endpoint(service, handler),
                methods=["POST"],
                name=f"{handler.__name__} at {path}",
                summary=summary,
                responses=_RESPONSES,
                openapi_extra=describe_body(body),
            )
    return routes
