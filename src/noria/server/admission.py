"""Refuses what the engine would refuse, before anything is done for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noria.config.errors import OverloadError
from noria.engine.crowd import LEAST_WORK, Crowd, Work
from noria.server.errors import ApiError, overloaded
from noria.server.health import Watch
from noria.server.http_metrics import HttpMetrics
from noria.server.middleware import ARRIVED_S, HttpLayer, own_path, stated_length
from noria.server.protocol.asked import SPELLINGS, Asked, asked_of
from noria.server.routes import HANDLER
from noria.server.terms import TIMEOUT_FIELD, TIMEOUT_HEADER, time_of_header

MAX_PEEK_BYTES = 64 * 2**10  # of a body that is looked into; a longer one goes on as it is


@dataclass(frozen=True, slots=True)
class Asking:
    """What is known of a request by its head. stated_s: the time that a header gives it; arrived_s: by the monotonic
    clock.
    """

    path: str
    stated_s: float | None
    arrived_s: float


class Admission:
    """Tells whether the engine, asked now, would refuse a request for certain.

    What counts is the least that the request can turn out to be: by its head alone, or by what its body says of
    sequences, tokens and time. The engine decides about all that passes.

    crowd: of the engine. default_timeout_s: of requests that state none.
    """

    def __init__(
        self, crowd: Callable[[], Crowd | None], watch: Watch, default_timeout_s: float | None
    ) -> None:
        self._crowd = crowd
        self._watch = watch
        self._default_timeout_s = default_timeout_s

    def crowd(self) -> Crowd | None:
        """What a request meets, where it is enough for any to be refused."""
        crowd = self._crowd()
        return None if crowd is None or not crowd.is_waited_in else crowd

    def by_head(self, crowd: Crowd, asking: Asking) -> OverloadError | None:
        """Why the request is refused, whatever its body says."""
        timeout_s = self._default_timeout_s if asking.stated_s is None else asking.stated_s
        return self._refusal(crowd, LEAST_WORK, _left_s(asking, timeout_s))

    def by_body(self, crowd: Crowd, asking: Asking, body: bytes) -> OverloadError | None:
        """Why the request is refused that says no more of itself than this. It passes by its head."""
        has_time = asking.stated_s is not None or self._default_timeout_s is not None
        if not has_time and TIMEOUT_FIELD.encode() not in body:
            return None
        asked = asked_of(body, SPELLINGS[asking.path])
        return None if asked is None else self._refusal_of(crowd, asked, asking)

    def _refusal_of(self, crowd: Crowd, asked: Asked, asking: Asking) -> OverloadError | None:
        times = [one for one in (asking.stated_s, asked.timeout_s) if one is not None]
        output = math.inf
        if asked.max_tokens is not None:
            output = crowd.forecast.expected_output(asked.max_tokens, asked.ignores_eos)
        work = Work(max(1, asked.num_sequences), 1, output)
        return self._refusal(crowd, work, _left_s(asking, min(times, default=self._default_timeout_s)))

    def _refusal(self, crowd: Crowd, least: Work, timeout_s: float | None) -> OverloadError | None:
        """What the engine would say. One that cannot be asked, or a time that is over, is told of elsewhere."""
        if timeout_s is not None and timeout_s <= 0:
            return None
        try:
            crowd.admit(least, timeout_s)
        except OverloadError as refusal:
            return refusal if self._watch.is_ready() else None
        return None


class AdmissionMiddleware(HttpLayer):
    """Answers a request that `admission` refuses and that `doorway` has not seen, or has let pass.

    The body of a refused one is dropped as it comes; one that waits to be told to send it (Expect: 100-continue) is
    told no at once.
    """

    sees_probes = False

    def __init__(self, app: ASGIApp, admission: Admission, metrics: HttpMetrics) -> None:
        super().__init__(app)
        self._admission = admission
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = own_path(scope)
        crowd = self._admission.crowd() if path in SPELLINGS and scope["method"] == "POST" else None
        if crowd is None:
            await self._app(scope, receive, send)
            return
        try:
            refusal, receive = await self._decide(crowd, scope, receive)
        except ApiError as error:  # the body is larger than it may be
            await error.response(scope)(scope, receive, send)
            return
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._metrics.count_rejection(refusal.reason.value)
        scope[HANDLER] = path
        await _answer_to(refusal, scope).response(scope)(scope, receive, send)

    async def _decide(
        self, crowd: Crowd, scope: Scope, receive: Receive
    ) -> tuple[OverloadError | None, Receive]:
        """Why it is refused, and by what its body is received if it is not."""
        try:
            stated_s = time_of_header(Headers(scope=scope).get(TIMEOUT_HEADER))
        except ApiError:
            return None, receive  # its handler says what is wrong with it
        asking = Asking(own_path(scope), stated_s, scope["state"][ARRIVED_S])
        refusal = self._admission.by_head(crowd, asking)
        if refusal is not None:
            if not _waits_to_send(scope):
                await _take_in(receive)
            return refusal, receive
        if not 0 < stated_length(scope) <= MAX_PEEK_BYTES:
            return None, receive
        body = await _whole_body(receive)
        return self._admission.by_body(crowd, asking, body), _again(body, receive)


def _left_s(asking: Asking, timeout_s: float | None) -> float | None:
    """Of the time that a request had when it came."""
    return None if timeout_s is None else asking.arrived_s + timeout_s - time.monotonic()


def _answer_to(refusal: OverloadError, scope: Scope) -> ApiError:
    error = overloaded(refusal)
    if _waits_to_send(scope):
        error.headers["Connection"] = "close"  # whether its body comes is not known
    return error


def _waits_to_send(scope: Scope) -> bool:
    return Headers(scope=scope).get("expect", "").lower() == "100-continue"


async def _next(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message


async def _take_in(receive: Receive) -> None:
    """And drop it, so that whoever sends all of it before it reads finds the connection in order."""
    while (await _next(receive)).get("more_body"):
        pass


async def _whole_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await _next(receive)
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """What is received by somebody who has not seen the body yet."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return whole.pop() if whole else await receive()

    return receive_again
