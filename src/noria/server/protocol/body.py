"""From the bytes of a request to its checked fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from noria.server.errors import ApiError

_MAX_ERRORS = 10
_MAX_ERROR_LENGTH = 200
_MAX_DIGITS = 20
PRIORITY_HEADER = "X-Vllm-Priority"  # counts before the field

_MARKS = b'[]{}"'
_NO_MARKS = bytes(byte for byte in range(256) if byte not in _MARKS)
_STRIDE = 2**20
_STRING = re.compile(rb'"[^"]*"')

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model]) -> Model:
    """The body as a `model`. Raises ApiError (400) that names the faults, the first ten of them."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise ApiError("The body must be JSON, with `Content-Type: application/json`.")
    body = await request.body()
    max_depth = request.app.state.switchboard.limits.max_json_depth
    if is_deeper(body, max_depth):
        raise ApiError(
            f"The body is nested too deeply: at most {max_depth} objects and lists inside one another."
        )
    return parse_body(body, model, _stated_in_headers(request.headers, model))


def parse_body(body: bytes, model: type[Model], headers: Mapping[str, Any] | None = None) -> Model:
    """headers: fields that the headers state; they count before the body's. Raises ApiError (400)."""
    try:
        fields: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(f"The body is not valid JSON: {error}"[:_MAX_ERROR_LENGTH]) from None
    if not isinstance(fields, dict):
        raise ApiError("The body must be a JSON object.")
    try:
        return model.model_validate({**fields, **(headers or {})})
    except ValidationError as error:
        raise _refusal(error) from None


def is_deeper(body: bytes, max_depth: int) -> bool:
    """Whether a JSON text has more than max_depth objects and lists inside one another; what is not JSON may pass.

    It is looked at before it is parsed, and quickly however long it is: a parser would build what nobody wants, and
    may run out of stack.
    """
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return False
    import numpy as np  # few bodies come so far

    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = _STRING.sub(b"", unescaped.translate(None, delete=_NO_MARKS))
    depth = 0
    for start in range(0, len(marks), _STRIDE):
        stride = np.frombuffer(marks, np.uint8, min(_STRIDE, len(marks) - start), start)
        opens = (stride == ord("[")) | (stride == ord("{"))
        depths = depth + np.cumsum(np.where(opens, 1, -1))
        if depths.max() > max_depth:
            return True
        depth = int(depths[-1])
    return False


def _stated_in_headers(headers: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    priority = headers.get(PRIORITY_HEADER)
    if priority is None or "priority" not in model.model_fields:
        return {}
    try:
        return {"priority": int(priority[:_MAX_DIGITS])}
    except ValueError:
        raise ApiError(f"{PRIORITY_HEADER} must be a whole number", param=PRIORITY_HEADER) from None


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
