"""A route that can be told by its path, by those who count requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

HANDLER = "noria.handler"  # in a scope: the path of the route, as it was made

Endpoint = Callable[[Request], Awaitable[Response]]


class PathRoute(Route):
    """path: `{name}` stands for a part of it, `{name:path}` for all the rest.

    What answers GET answers HEAD too, as starlette has it; the web server leaves the content out.
    """

    def __init__(self, path: str, endpoint: Endpoint, methods: Sequence[str] = ("GET",)) -> None:
        super().__init__(path, endpoint, methods=methods)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, found if match is Match.NONE else {**found, HANDLER: self.path}
