"""From the bytes of a request to its checked fields."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from noria.server.errors import ApiError

_MAX_ERRORS = 10
_MAX_ERROR_LENGTH = 200

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model]) -> Model:
    """The body as a `model`. Raises ApiError (400) that names the faults, the first ten of them."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise ApiError("The body must be JSON, with `Content-Type: application/json`.")
    return parse_body(await request.body(), model)


def parse_body(body: bytes, model: type[Model]) -> Model:
    """Raises ApiError (400)."""
    try:
        fields: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(f"The body is not valid JSON: {error}"[:_MAX_ERROR_LENGTH]) from None
    if not isinstance(fields, dict):
        raise ApiError("The body must be a JSON object.")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> ApiError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [_describe(fault)[:_MAX_ERROR_LENGTH] for fault in faults[:_MAX_ERRORS]]
    if len(faults) > _MAX_ERRORS:
        lines.append(f"and {len(faults) - _MAX_ERRORS} more")
    location = faults[0]["loc"]
    return ApiError("; ".join(lines), param=str(location[0]) if location else None)


def _describe(fault: Any) -> str:
    # Of a field that takes several kinds of value the location also names the kind that was tried.
    where = ".".join(str(part) for part in fault["loc"])
    return f"{where}: {fault['msg']}"
