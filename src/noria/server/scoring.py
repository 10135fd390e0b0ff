"""POST /score and /rerank: how well texts fit each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noria.config.abilities import ScoreMethod, Task
from noria.config.pooling import Finish, PoolingParams
from noria.server.errors import ApiError
from noria.server.protocol.body import read_body
from noria.server.protocol.pooling import RerankRequest, ScoreRequest
from noria.server.reading import Reading, Readings, array_of, json_of
from noria.server.service import Service
from noria.tokenize.judging import judging_messages, judging_options, word_ids

Pair = tuple[str, str]  # a query and a document

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
        queries = queries * len(documents)
    if len(queries) != len(documents):
        raise ApiError(
            f"there are {len(queries)} queries and {len(documents)} documents; one query goes with any number of "
            "documents, several with as many",
            param=_FIRST[0],
        )
    scores, readings = await _scored(reading, list(zip(queries, documents, strict=True)), fields.instruction)
    data = [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores)]
    return reading.reply("list", data, readings)


async def rerank(service: Service, request: Request) -> Response:
    """The documents by how well they fit the query, best first. Raises as `score`."""
    fields = await read_body(request, RerankRequest)
    reading = Reading(service, request, fields, "rerank-")
    (query,) = _texts(service, [fields.query], "query")
    documents = _documents(service, fields.documents)
    await _check_shared(reading, fields.query, fields.instruction, "query")
    if fields.top_n is not None and fields.top_n < 0:
        raise ApiError(f"top_n must be at least 0, got {fields.top_n}", param="top_n")
    shown = documents
    if fields.max_tokens_per_doc is not None:
        shown = await _shortened(service, documents, fields.max_tokens_per_doc)
    scores, readings = await _scored(reading, [(query, one) for one in shown], fields.instruction)
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    results: list[dict[str, Any]] = []
    for index in order[: fields.top_n or None]:
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
    abilities = reading.service.served.abilities
    abilities.need(Task.SCORE)
    if instruction is not None and abilities.score_method is not ScoreMethod.TOKENS:
        raise ApiError("instruction is for chat models; this one scores without words", param="instruction")
    if abilities.score_method is ScoreMethod.SIMILARITY:
        return await _by_similarity(reading, pairs)
    if abilities.score_method is ScoreMethod.CLASSIFIER:
        return await _by_classifier(reading, pairs)
    return await _by_words(reading, pairs, instruction)


async def _by_similarity(reading: Reading, pairs: Sequence[Pair]) -> tuple[list[float], Readings]:
    """Each text is read once, however many pairs it is in."""
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    if reading.most_tokens is None:
        prompts = [tuple(ids) for ids in await reading.service.encode(texts, add_special_tokens=True)]
    else:
        prompts = await reading.service.encode_within(texts, reading.most_tokens)
    params = replace(reading.service.served.abilities.embedding, finish=Finish.NORMALIZE)
    readings = await reading.numbers(prompts, params)
    vectors = {text: array_of(one) for text, one in zip(texts, readings.numbers, strict=True)}
    return [float(vectors[first] @ vectors[second]) for first, second in pairs], readings


async def _by_classifier(reading: Reading, pairs: Sequence[Pair]) -> tuple[list[float], Readings]:
    encoded = await reading.service.encode_pairs(pairs, reading.most_tokens)
    classes = reading.service.served.abilities.classes
    params = [replace(classes, num_first=num_first) for _, num_first in encoded]
    readings = await reading.numbers([ids for ids, _ in encoded], params)
    return [float(array_of(one)[0]) for one in readings.numbers], readings


async def _by_words(
    reading: Reading, pairs: Sequence[Pair], instruction: str | None
) -> tuple[list[float], Readings]:
    service = reading.service
    words = service.served.abilities.score_words
    tokenizer = service.served.tokenizer
    params = PoolingParams(**word_ids(tokenizer, words))
    chats = [judging_messages(query, document, words, instruction) for query, document in pairs]
    prompts = [tuple(ids) for ids in await service.encode_chats(chats, judging_options())]
    readings = await reading.numbers(prompts, params)
    return [float(array_of(one)[0]) for one in readings.numbers], readings


async def _shortened(service: Service, documents: Sequence[str], most: int) -> list[str]:
    if most < 1:
        raise ApiError(f"max_tokens_per_doc must be at least 1, got {most}", param="max_tokens_per_doc")
    encoded = await service.encode(documents, add_special_tokens=False)
    return [
        text if len(ids) <= most else await service.decode(ids[:most])
        for text, ids in zip(documents, encoded, strict=True)
    ]


def _side(service: Service, fields: ScoreRequest, names: Sequence[str]) -> list[str]:
    """Of a side's several names the one that is stated. Raises ApiError."""
    stated = [name for name in names if getattr(fields, name) is not None]
    if len(stated) != 1:
        raise ApiError(f"one of {', '.join(f'`{name}`' for name in names)} is needed", param=names[0])
    value = getattr(fields, stated[0])
    return _texts(service, [value] if isinstance(value, str) else value, stated[0])


def _documents(service: Service, value: Any) -> list[str]:
    if isinstance(value, list):
        value = [one.get("text") if isinstance(one, dict) else one for one in value]
    return _texts(service, value, "documents")


def _texts(service: Service, value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not value:
        raise ApiError(f"{name} must hold at least one text", param=name)
    most = service.limits.max_inputs
    if len(value) > most:
        raise ApiError(f"{name} holds {len(value)} texts; one request may have {most}", param=name)
    for number, one in enumerate(value, 1):
        if not isinstance(one, str) or not one:
            raise ApiError(f"{name} must hold texts that are not empty; number {number} is none", param=name)
    return value
