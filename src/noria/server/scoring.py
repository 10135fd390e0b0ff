"""POST /score and /rerank: how well texts fit each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noria.server.errors import ApiError
from noria.server.protocol.body import read_body
from noria.server.protocol.pooling import RerankRequest, ScoreRequest
from noria.server.reading import Reading, Readings, array_of, json_of
from noria.server.service import Service
from noria.tokenize.scoring import (
    Pair,
    best_first,
    check_top_n,
    checked_texts,
    document_texts,
    pairs_of,
    scoring_of,
)

_FIRST = ("queries", "text_1", "data_1")
_SECOND = ("documents", "items", "text_2", "data_2")


async def score(service: Service, request: Request) -> Response:
    """One query against each document, or as many queries as documents, each against its own.

    Raises ApiError, RequestError, OverloadError or EngineError before anything is sent.
    """
    fields = await read_body(request, ScoreRequest)
    reading = Reading(service, request, fields, "score-")
    queries, documents = (_side(service, fields, names) for names in (_FIRST, _SECOND))
    if len(queries) == 1:
        await _check_shared(reading, queries[0], fields.instruction, _FIRST[0])
    scores, readings = await _scored(reading, pairs_of(queries, documents), fields.instruction)
    data = [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores)]
    return reading.reply("list", data, readings)


async def rerank(service: Service, request: Request) -> Response:
    """The documents by how well they fit the query, best first. Raises as `score`."""
    fields = await read_body(request, RerankRequest)
    reading = Reading(service, request, fields, "rerank-")
    (query,) = _texts(service, [fields.query], "query")
    _check_count(service, fields.documents, "documents")
    documents = document_texts(fields.documents)
    await _check_shared(reading, fields.query, fields.instruction, "query")
    check_top_n(fields.top_n)
    shown = documents
    if fields.max_tokens_per_doc is not None:
        shown = await service.shortened(documents, fields.max_tokens_per_doc)
    scores, readings = await _scored(reading, [(query, one) for one in shown], fields.instruction)
    results: list[dict[str, Any]] = []
    for index in best_first(scores, fields.top_n):
        entry: dict[str, Any] = {"index": index, "relevance_score": scores[index]}
        if fields.return_documents is not False:
            entry["document"] = {"text": documents[index]}
        results.append(entry)
    usage = readings.usage(service.options.enable_prompt_tokens_details)
    return json_of({"id": reading.id, "model": reading.model, "usage": usage, "results": results})


async def _check_shared(reading: Reading, query: str, instruction: str | None, param: str) -> None:
    """Refuse what fits no context by itself, before it is read anew with each document. Raises ApiError."""
    longest = reading.service.served.max_model_len
    texts = [query, instruction or ""]
    num_tokens = sum(map(len, await reading.service.encode(texts, add_special_tokens=False)))
    if num_tokens > longest:
        raise ApiError(
            f"This model's maximum context length is {longest} tokens. However, what is read with each document has "
            f"{num_tokens} by itself (context_length_exceeded)",
            param=param,
        )


async def _scored(
    reading: Reading, pairs: Sequence[Pair], instruction: str | None
) -> tuple[list[float], Readings]:
    service = reading.service
    if reading.keeps_ends:
        raise ApiError("of texts that are scored the beginnings alone can be kept", param="truncation_side")
    scoring = scoring_of(service.served.abilities, pairs, instruction)
    readings = await reading.numbers(*await service.encode_for(scoring, reading.most_tokens))
    return scoring.scores([array_of(one) for one in readings.numbers]), readings


def _side(service: Service, fields: ScoreRequest, names: Sequence[str]) -> list[str]:
    """Of a side's several names the one that is stated. Raises ApiError."""
    stated = [name for name in names if getattr(fields, name) is not None]
    if len(stated) != 1:
        raise ApiError(f"one of {', '.join(f'`{name}`' for name in names)} is needed", param=names[0])
    value = getattr(fields, stated[0])
    return _texts(service, [value] if isinstance(value, str) else value, stated[0])


def _texts(service: Service, value: Any, name: str) -> list[str]:
    _check_count(service, value, name)
    return checked_texts(value, name)


def _check_count(service: Service, value: Any, name: str) -> None:
    most = service.limits.max_inputs
    if isinstance(value, list) and len(value) > most:
        raise ApiError(f"{name} holds {len(value)} texts; one request may have {most}", param=name)
