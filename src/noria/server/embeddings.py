"""POST /v1/embeddings, /pooling and /classify."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from noria.config.abilities import Task
from noria.config.pooling import Pooling, PoolingParams
from noria.core.plan import Numbers
from noria.server.errors import ApiError
from noria.server.protocol.body import read_body
from noria.server.protocol.pooling import (
    ClassificationRequest,
    EmbeddingRequest,
    InputFields,
    PoolingRequest,
    VectorFields,
)
from noria.server.reading import Reading, Readings, array_of
from noria.server.service import Service

_FORMATS = ("float", "base64")
_TASKS = (Task.EMBED, Task.TOKEN_EMBED, Task.CLASSIFY, Task.TOKEN_CLASSIFY)


async def create_embeddings(service: Service, request: Request) -> Response:
    """Raises ApiError, RequestError, OverloadError or EngineError before anything is sent."""
    fields = await read_body(request, EmbeddingRequest)
    reading = Reading(service, request, fields, "embd-")
    form = _format_of(fields)
    readings = await _read(reading, fields, _params_of(service, Task.EMBED, fields))
    data = [
        {"index": index, "object": "embedding", "embedding": _written(numbers, form)}
        for index, numbers in enumerate(readings.numbers)
    ]
    return reading.reply("list", data, readings)


async def pool(service: Service, request: Request) -> Response:
    """As create_embeddings, for any task."""
    fields = await read_body(request, PoolingRequest)
    reading = Reading(service, request, fields, "pool-")
    form, task = _format_of(fields), _task_of(service, fields)
    readings = await _read(reading, fields, _params_of(service, task, fields))
    data = [
        {"index": index, "object": "pooling", "data": _written(numbers, form)}
        for index, numbers in enumerate(readings.numbers)
    ]
    return reading.reply("list", data, readings)


async def classify(service: Service, request: Request) -> Response:
    """As create_embeddings: the likeliest label of each text, and how likely each is."""
    fields = await read_body(request, ClassificationRequest)
    reading = Reading(service, request, fields, "classify-")
    abilities = service.served.abilities
    abilities.need(Task.CLASSIFY)
    readings = await _read(reading, fields, abilities.classes)
    data = []
    for index, numbers in enumerate(readings.numbers):
        probs = array_of(numbers)
        label = abilities.labels[int(probs.argmax())]
        data.append({"index": index, "label": label, "probs": probs, "num_classes": len(probs)})
    return reading.reply("list", data, readings)


async def _read(reading: Reading, fields: InputFields, params: PoolingParams) -> Readings:
    return await reading.numbers(await reading.prompts(fields), params)


def _task_of(service: Service, fields: PoolingRequest) -> Task:
    """The one asked for, else the first that the model can. Raises ApiError, RequestError."""
    names = [task.value for task in _TASKS]
    if fields.task is not None and fields.task not in names:
        raise ApiError(f"task must be one of {', '.join(names)}, got {fields.task!r:.50}", param="task")
    if fields.task is not None:
        return Task(fields.task)
    able = [task for task in _TASKS if task in service.served.abilities.tasks]
    return able[0] if able else Task.EMBED


def _params_of(service: Service, task: Task, fields: VectorFields) -> PoolingParams:
    """Raises RequestError for what the model cannot do."""
    abilities = service.served.abilities
    abilities.need(task)
    if task in (Task.CLASSIFY, Task.TOKEN_CLASSIFY):
        if fields.dimensions is not None:
            raise ApiError("dimensions go with embeddings, not with classes", param="dimensions")
        params = abilities.classes
    else:
        abilities.check_dimensions(fields.dimensions)
        params = replace(abilities.embedding, dimensions=fields.dimensions or abilities.embedding.dimensions)
    if task in (Task.TOKEN_EMBED, Task.TOKEN_CLASSIFY):
        return replace(params, pooling=Pooling.ALL)
    return params


def _format_of(fields: VectorFields) -> str:
    if fields.encoding_format not in (None, *_FORMATS):
        raise ApiError(
            f"encoding_format must be float or base64, got {fields.encoding_format!r:.50}",
            param="encoding_format",
        )
    return fields.encoding_format or "float"


def _written(numbers: Numbers, form: str) -> Any:
    """base64 is of the little-endian floats themselves."""
    return base64.b64encode(numbers.data).decode() if form == "base64" else array_of(numbers)
