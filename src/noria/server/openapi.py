"""Request bodies in /openapi.json. Handlers read bodies themselves, so the framework has to be told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"

# What any route may answer besides its own, and what one with a body may.
_ERRORS = {
    401: "The server wants an API key.",
    404: "There is no such thing here.",
    500: "A fault of the server's.",
    503: "The server takes no work now; try after `Retry-After` seconds.",
}
_BODY_ERRORS = {
    400: "The request is at fault; `error.param` names the field where it is one.",
    413: "The body is larger than the server reads.",
    429: "The key's own limits; try after `Retry-After` seconds.",
    504: "The request's deadline passed.",
}


class ErrorDetails(BaseModel):
    message: str
    type: str
    param: str | None
    code: int


class ErrorReply(BaseModel):
    error: ErrorDetails


def describe_body(model: type[BaseModel], is_required: bool = True) -> dict[str, Any]:
    """The OpenAPI operation members for a JSON body of this model."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": schema}}}}


def openapi_with(
    app: FastAPI, models: Sequence[type[BaseModel]], served_names: Sequence[str]
) -> Callable[[], dict[str, Any]]:
    """An `app.openapi` whose components hold the models that `describe_body` refers to.

    served_names: what a request's `model` may be.
    """
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = make()  # also kept as app.openapi_schema
            described: list[type[BaseModel]] = [*models, ErrorReply]
            _, definitions = models_json_schema(
                [(model, "validation") for model in described], ref_template=_REF
            )
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            components.update(definitions["$defs"])
            _name_models(components, served_names)
            _describe_errors(schema)
        assert app.openapi_schema is not None
        return app.openapi_schema

    return openapi


def _name_models(components: dict[str, Any], names: Sequence[str]) -> None:
    for component in components.values():
        model = component.get("properties", {}).get("model")
        for kind in () if model is None else model.get("anyOf", [model]):
            if kind.get("type") == "string":
                kind["enum"] = list(names)


def _describe_errors(schema: dict[str, Any]) -> None:
    content = {"application/json": {"schema": {"$ref": _REF.format(model=ErrorReply.__name__)}}}
    for operations in schema["paths"].values():
        for operation in operations.values():
            # The framework documents its own error for every path parameter; what this server answers is 400.
            operation["responses"].pop("422", None)
            errors = _ERRORS | (_BODY_ERRORS if "requestBody" in operation else {})
            for status, description in errors.items():
                answer = {"description": description, "content": content}
                operation["responses"].setdefault(str(status), answer)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
