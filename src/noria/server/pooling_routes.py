"""The routes that read texts and continue none."""

from __future__ import annotations

from pydantic import BaseModel

from noria.server.embeddings import classify, create_embeddings, pool
from noria.server.endpoint import Handler, endpoint
from noria.server.operations import Operation, Reply
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
_ENTRIES = {200: Reply("An entry for each text.")}


def pooling_routes(service: Service) -> list[Operation]:
    return [
        Operation("pooling", "POST", path, endpoint(service, handler), summary, body, replies=_ENTRIES)
        for paths, summary, body, handler in _ROUTES
        for path in paths
    ]
