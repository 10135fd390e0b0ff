"""Request bodies in /openapi.json. Handlers read bodies themselves, so the framework has to be told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"


def describe_body(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI operation members for a JSON body of this model."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def openapi_with(app: FastAPI, models: Sequence[type[BaseModel]]) -> Callable[[], dict[str, Any]]:
    """An `app.openapi` whose components hold the models that `describe_body` refers to."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = make()  # also kept as app.openapi_schema
            _, definitions = models_json_schema(
                [(model, "validation") for model in models], ref_template=_REF
            )
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            components.update(definitions["$defs"])
            _drop_422(schema)
        assert app.openapi_schema is not None
        return app.openapi_schema

    return openapi


def _drop_422(schema: dict[str, Any]) -> None:
    # The framework documents its own error for every path parameter; what this server answers is 400.
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
