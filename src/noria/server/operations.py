"""What the server can be asked: routes, and what /openapi.json says of them. Handlers read requests themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import BaseModel

from noria.server.routes import Endpoint, PathRoute

JSON = "application/json"


class ErrorDetails(BaseModel):
    message: str
    type: str
    param: str | None
    code: int


class ErrorReply(BaseModel):
    error: ErrorDetails


@dataclass(frozen=True)
class Reply:
    """What comes with a status. media_types: of its body, which has none where there are none; model: of its JSON."""

    description: str = "As asked for."
    media_types: tuple[str, ...] = (JSON,)
    model: type[BaseModel] | None = None


@dataclass(frozen=True)
class Operation:
    """A route, and what is told of it.

    tag: the group it is told of in. body: its JSON. replies: besides the errors that any route may answer, which
    are of the model `error`.
    """

    tag: str
    method: str
    path: str
    endpoint: Endpoint
    summary: str
    body: type[BaseModel] | None = None
    is_body_required: bool = True
    replies: Mapping[int, Reply] = field(default_factory=lambda: MappingProxyType({200: Reply()}))
    error: type[BaseModel] = ErrorReply


def routes_of(operations: Iterable[Operation]) -> list[PathRoute]:
    return [PathRoute(operation.path, operation.endpoint, (operation.method,)) for operation in operations]
