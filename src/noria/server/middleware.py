"""What happens around every request: id, measurement, a last resort for faults, keys, size and admission.

Plain ASGI callables: they wrap `receive` and `send` and never hold a body or a stream back.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from abc import ABC, abstractmethod

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noria.server.dashboard.assets import EVENTS_PATH, PAGE_PATHS
from noria.server.errors import ApiError, internal_error, speaks_anthropic, unavailable
from noria.server.gate import Gate
from noria.server.http_metrics import HttpMetrics
from noria.server.keys import KeyRing
from noria.server.routes import HANDLER

logger = logging.getLogger("noria.server")

# Routes that say how the server is; open without a key, answered while draining, not measured.
PROBES = frozenset(("/health", "/ready", "/ping", "/version", "/metrics"))

# In a request's state: when it came, by the monotonic clock; that it was let in and is counted before the app sees it.
ARRIVED_S = "arrived_s"
IS_INSIDE = "is_inside"

CLIENT_GONE = 499  # in our own counts: the client left before it had an answer

# Ids are to differ, not to be secret: asking the system for each would cost as much as the rest of a refusal.
_ids = random.Random()
os.register_at_fork(after_in_child=_ids.seed)

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def own_path(scope: Scope) -> str:
    """The path as routes are named by, without what a proxy puts before it."""
    return scope["path"].removeprefix(scope.get("root_path", ""))


def _is_probe(scope: Scope) -> bool:
    return own_path(scope) in PROBES


def stated_length(scope: Scope) -> int:
    """Bytes of the body as Content-Length states them; 0 where it says nothing sensible."""
    stated = Headers(scope=scope).get("content-length", "")
    return int(stated[:20]) if stated.isdecimal() else 0


def is_request_id(text: str) -> bool:
    """Whether a client's own request id is fit for headers and logs."""
    return _REQUEST_ID.fullmatch(text) is not None


def new_request_id() -> str:
    """32 hexadecimal digits, unlike any other."""
    return f"{_ids.getrandbits(128):032x}"


class HttpLayer(ABC):
    """A layer around an ASGI app: `handle` sees what it is for, all else passes it by.

    sees_probes: whether PROBES are for it, or only other HTTP requests.
    """

    sees_probes = True

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (self.sees_probes or not _is_probe(scope)):
            await self.handle(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the app answer."""


class RootPathMiddleware(HttpLayer):
    """Finds the routes behind the path that a proxy puts in front of them, whether the proxy takes it off or not."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        super().__init__(app)
        self._root_path = root_path

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        is_whole = path == self._root_path or path.startswith(f"{self._root_path}/")
        # A scope's path holds its root_path.
        inner = {**scope, "root_path": self._root_path, "path": path if is_whole else self._root_path + path}
        await self._app(inner, receive, send)


class RequestIdMiddleware(HttpLayer):
    """Answers with the client's X-Request-Id, or one of ours, which handlers find in `scope["state"]`, beside the
    instant of its arrival.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        stated = Headers(scope=scope).get("x-request-id", "")
        request_id = stated if is_request_id(stated) else new_request_id()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state.setdefault(ARRIVED_S, time.monotonic())  # known where its body was waited for before

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                if speaks_anthropic(scope):
                    headers["request-id"] = request_id  # where clients of that protocol look
            await send(message)

        await self._app(scope, receive, send_with_id)


class HttpMetricsMiddleware(HttpLayer):
    """Measures requests by method, route and status class."""

    sees_probes = False

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            own_path(scope) == EVENTS_PATH
        ):  # lasts as long as a page is open, which says nothing of the server
            await self._app(scope, receive, send)
            return
        start_s = time.perf_counter()
        status, num_bytes = CLIENT_GONE, 0

        async def measured_send(message: Message) -> None:
            nonlocal status, num_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                num_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, measured_send)
        finally:
            self._metrics.observe(
                method=scope["method"],
                handler=scope.get(HANDLER, "none"),  # a path that a client invents makes no new series
                status=status,
                duration_s=time.perf_counter() - start_s,
                request_bytes=stated_length(scope),
                response_bytes=num_bytes,
            )


class ErrorBoundary(HttpLayer):
    """Turns an exception that nothing else handled into a 500 that tells nothing, and logs it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except ClientDisconnect:
            return  # there is nobody to answer
        except Exception:
            request_id = scope.get("state", {}).get("request_id")
            logger.exception("request %s failed", request_id)
            if has_started:
                raise  # the server closes the connection, which tells the client that the answer is cut
            await internal_error().response(scope)(scope, receive, send)


class ApiKeyMiddleware(HttpLayer):
    """Lets through who knows one of the keys (see `stated_key`), and probes and the dashboard's files. Handlers find
    whose key it is in `scope["state"]`.
    """

    sees_probes = False

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        super().__init__(app)
        self._keys = keys

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        tenant = self._keys.holder(stated_key(scope).encode("latin-1"))
        if tenant is not None:
            scope.setdefault("state", {})["tenant"] = tenant
        if tenant is not None or own_path(scope) in PAGE_PATHS:
            await self._app(scope, receive, send)
            return
        error = ApiError(
            "This server wants an API key: send `Authorization: Bearer KEY` with a valid one.",
            401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response(scope)(scope, receive, send)


def stated_key(scope: Scope) -> str:
    """The key of a request: `Authorization: Bearer KEY`, or `x-api-key: KEY` in the Messages protocol."""
    headers = Headers(scope=scope)
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get("x-api-key", "").strip() if speaks_anthropic(scope) else ""


class BodyLimitMiddleware(HttpLayer):
    """Refuses a body above the limit: by its stated length at once, else as soon as it has grown past it."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        super().__init__(app)
        self._max_bytes = max_body_bytes

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if stated_length(scope) > self._max_bytes:
            await self._error().response(scope)(scope, receive, send)
            return
        num_bytes = 0

        async def counted_receive() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise self._error()
            return message

        await self._app(scope, counted_receive, send)

    def _error(self) -> ApiError:
        return ApiError(f"The body is larger than {self._max_bytes} bytes, the most this server reads.", 413)


class GateMiddleware(HttpLayer):
    """Counts the requests inside; while the server drains, refuses new ones with 503 and Retry-After.

    One that was inside before the app saw it is counted by whoever let it in.
    """

    sees_probes = False

    def __init__(self, app: ASGIApp, gate: Gate, http_metrics: HttpMetrics) -> None:
        super().__init__(app)
        self._gate = gate
        self._metrics = http_metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("state", {}).get(IS_INSIDE):
            await self._app(scope, receive, send)
            return
        if self._gate.is_draining:
            self._metrics.count_rejection("draining")
            error = unavailable("The server is shutting down and takes no new requests.", retry_after_s=5)
            await error.response(scope)(scope, receive, send)
            return
        self._gate.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self._gate.leave()
