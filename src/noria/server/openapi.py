"""The API's page: /openapi.json for machines, /docs and /redoc for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import orjson
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from noria import __version__
from noria.server.operations import JSON, Operation, Reply
from noria.server.routes import Endpoint, PathRoute

_TITLE = "Noria"
_OPENAPI_VERSION = "3.1.0"
_REF = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_FROM_NETWORK = "https://cdn.jsdelivr.net/npm"

Models = dict[tuple[Any, Literal["validation", "serialization"]], dict[str, Any]]


# What any route may answer besides its own, and what one with a body may.
_ERRORS = {
    401: "The server wants an API key.",
    404: "There is no such thing here.",
    500: "A fault of the server's.",
    503: "The server takes no work now; try after `Retry-After` seconds.",
}
_BODY_ERRORS = {
    400: "The request is at fault; the error names the field where it is one.",
    413: "The body is larger than the server reads.",
    429: "The key's own limits; try after `Retry-After` seconds.",
    504: "The request's deadline passed.",
}


def page_routes(operations: Sequence[Operation], served_names: Sequence[str]) -> list[PathRoute]:
    """Routes that tell of these operations. served_names: what a request's `model` may be."""

    @cache  # made when it is first asked for: a start is not the time for it
    def document() -> dict[str, Any]:
        return openapi_of(operations, served_names)

    async def openapi(request: Request) -> Response:
        root_path = request.scope.get("root_path", "")
        servers = {"servers": [{"url": root_path}]} if root_path else {}
        return Response(orjson.dumps({**document(), **servers}), media_type=JSON)

    return [
        PathRoute("/openapi.json", openapi),
        PathRoute("/docs", _shown(_DOCS)),
        PathRoute("/redoc", _shown(_REDOC)),
    ]


def openapi_of(operations: Sequence[Operation], served_names: Sequence[str]) -> dict[str, Any]:
    """An OpenAPI document, whose components are the models of bodies and replies."""
    models, definitions = _models(operations)
    components: dict[str, Any] = definitions["$defs"]
    _name_models(components, served_names)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation, path, models)
    return {
        "openapi": _OPENAPI_VERSION,
        "info": {"title": _TITLE, "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


def _models(operations: Sequence[Operation]) -> tuple[Models, dict[str, Any]]:
    """References to each model that a body or a reply has, and what they refer to."""
    bodies = [operation.body for operation in operations if operation.body is not None]
    replies = [reply.model for operation in operations for reply in operation.replies.values()]
    errors = [operation.error for operation in operations]
    wanted: Models = {(body, "validation"): {} for body in bodies}
    wanted |= {(model, "serialization"): {} for model in (*replies, *errors) if model is not None}
    return models_json_schema(list(wanted), ref_template=_REF)


def _described(operation: Operation, path: str, models: Models) -> dict[str, Any]:
    errors = _ERRORS if operation.body is None else _ERRORS | _BODY_ERRORS
    replies = {status: Reply(why, model=operation.error) for status, why in errors.items()}
    replies |= operation.replies
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()}{path}").rstrip("_"),
        "responses": {str(status): _replied(replies[status], models) for status in sorted(replies)},
    }
    names = _PARAMETER.findall(operation.path)
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if operation.body is not None:
        schema = models[operation.body, "validation"]
        content = {JSON: {"schema": schema}}
        described["requestBody"] = {"required": operation.is_body_required, "content": content}
    return described


def _replied(reply: Reply, models: Models) -> dict[str, Any]:
    schema = {} if reply.model is None else {"schema": models[reply.model, "serialization"]}
    content = dict.fromkeys(reply.media_types, schema)
    return {"description": reply.description, **({"content": content} if content else {})}


def _name_models(components: dict[str, Any], names: Sequence[str]) -> None:
    for component in components.values():
        model = component.get("properties", {}).get("model")
        for kind in () if model is None else model.get("anyOf", [model]):
            if kind.get("type") == "string":
                kind["enum"] = list(names)


def _shown(page: str) -> Endpoint:
    async def show(request: Request) -> Response:
        return HTMLResponse(page)

    return show


# Addresses are relative, so the pages work behind whatever path a proxy puts in front of them.
_DOCS = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{_TITLE}: API</title>
<link rel="stylesheet" href="{_FROM_NETWORK}/swagger-ui-dist@5/swagger-ui.css">
</head>
<body>
<div id="page">To show this page a browser fetches swagger-ui from cdn.jsdelivr.net. What it shows is in
<a href="openapi.json">openapi.json</a>.</div>
<script src="{_FROM_NETWORK}/swagger-ui-dist@5/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({{url: "openapi.json", dom_id: "#page"}});</script>
</body>
</html>
"""
_REDOC = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{_TITLE}: API</title>
</head>
<body>
<noscript>What this page shows is in <a href="openapi.json">openapi.json</a>.</noscript>
<redoc spec-url="openapi.json"></redoc>
<script src="{_FROM_NETWORK}/redoc@2/bundles/redoc.standalone.js"></script>
</body>
</html>
"""
