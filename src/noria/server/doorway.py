"""Refusals of the engine's, told by the HTTP protocol itself: nothing is set up for a request that is refused.

Most of what comes under overload is refused, so what that costs decides how much of the machine is left for the rest.
A plain request is looked at as soon as its body is there: see `Doorway.plain`. One that came whole, in one piece, is
not even parsed: see `whole_request`. All others go on to the app, where `admission` refuses them by the same rules.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.protocols.utils import get_path_with_query_string

from noria.config.errors import OverloadError
from noria.engine.crowd import Crowd
from noria.server.access_log import RefusalLines
from noria.server.admission import MAX_PEEK_BYTES, Admission, Asking
from noria.server.errors import (
    ApiError,
    anthropic_error,
    is_anthropic_path,
    openai_error,
    overloaded,
)
from noria.server.gate import Gate
from noria.server.http_metrics import HttpMetrics
from noria.server.http_protocol import BoundedHttpProtocol
from noria.server.keys import KeyRing
from noria.server.limits import Limits
from noria.server.load_report import ASKED_BY
from noria.server.middleware import (
    ARRIVED_S,
    CLIENT_GONE,
    IS_INSIDE,
    is_request_id,
    new_request_id,
    stated_key,
)
from noria.server.protocol.asked import SPELLINGS
from noria.server.terms import TIMEOUT_HEADER, time_of_header
from noria.server.whole_request import WholeRequest, whole_request

_LATELY_S = 0.1  # after a refusal others are expected
_TIMEOUT_HEADER = TIMEOUT_HEADER.encode()
# A request with one of these is not plain: it waits to be asked for its body, says of no length how long it is, or
# wants to be told more in its answer.
_NOT_PLAIN = frozenset((b"expect", b"transfer-encoding", ASKED_BY.encode()))

# (time to come back after, length, request id, other headers, body)
_ANSWER = (
    b"retry-after: %d\r\ncontent-length: %d\r\ncontent-type: application/json\r\nx-request-id: %b\r\n%b\r\n%b"
)


@dataclass(frozen=True, slots=True)
class Sight:
    """What the doorway may look at. root_path: of a proxy, or empty. is_shared: pages of other origins may ask."""

    root_path: str
    is_shared: bool
    max_body_bytes: int


@dataclass(frozen=True, slots=True)
class Plain:
    """The head of a plain request. headers: the first of each name, in lower case. arrived_s: of time.monotonic."""

    path: str
    headers: Mapping[bytes, bytes]
    arrived_s: float


class Way(Enum):
    """Of a request that is not refused. OPEN: it is not for the doorway to judge. PASSES: as things are inside now."""

    OPEN = "open"
    PASSES = "passes"


class Doorway:
    """Refuses plain requests, with all that goes with it but the writing. For the event loop's thread."""

    def __init__(
        self, admission: Admission, keys: KeyRing, gate: Gate, metrics: HttpMetrics, sight: Sight
    ) -> None:
        self.gate = gate
        self.lines = RefusalLines()
        self._refused_s = -math.inf  # when it last did, by time.monotonic
        self._admission = admission
        self._keys = keys
        self._metrics = metrics
        self._root_path = sight.root_path
        self._max_body_bytes = min(MAX_PEEK_BYTES, sight.max_body_bytes)
        self._not_plain = _NOT_PLAIN | ({b"origin"} if sight.is_shared else set())

    def plain(self, scope: Any, arrived_s: float) -> Plain | None:
        """A request that may be refused here: for the engine, with a short body of stated length. None is taken in
        while the server drains.
        """
        if self.gate.is_draining or scope["method"] != "POST":
            return None
        return self._plain(scope["path"], dict(reversed(scope["headers"])), arrived_s)

    def _plain(self, path: str, headers: Mapping[bytes, bytes], arrived_s: float) -> Plain | None:
        if self._root_path and path.startswith(f"{self._root_path}/"):
            path = path[len(self._root_path) :]
        if path not in SPELLINGS or not self._not_plain.isdisjoint(headers):
            return None
        if int(headers.get(b"content-length", b"0")) > self._max_body_bytes:
            return None
        return Plain(path, headers, arrived_s)

    def refuses_any(self) -> bool:
        """Whether a request can be refused at all."""
        return self._crowd() is not None

    def is_refusing(self) -> bool:
        """Whether it has lately: others are to be expected."""
        return time.monotonic() - self._refused_s < _LATELY_S

    def judge(self, whole: WholeRequest, arrived_s: float) -> bytes | Way:
        """The answer to one that is refused, as `answer` gives it."""
        plain = self._plain(whole.path, whole.headers, arrived_s)
        asked = None if plain is None else self._asked(plain)
        if plain is None or asked is None:
            return Way.OPEN
        refusal = self._refusal(*asked, whole.body)
        return Way.PASSES if refusal is None else self.answer(refusal, plain, len(whole.body))

    def _crowd(self) -> Crowd | None:
        return None if self.gate.is_draining else self._admission.crowd()

    def refusal(self, plain: Plain, body: bytes) -> OverloadError | None:
        """Why it is refused. None for one that is the app's to answer, be it because its key is unknown."""
        asked = self._asked(plain)
        return None if asked is None else self._refusal(*asked, body)

    def _asked(self, plain: Plain) -> tuple[Crowd, Asking] | None:
        """What it is judged by. None for one that is the app's to answer."""
        crowd = self._crowd()
        if crowd is None or not self._is_known(plain):
            return None
        stated = plain.headers.get(_TIMEOUT_HEADER)
        try:
            stated_s = time_of_header(None if stated is None else stated.decode("latin-1"))
        except ApiError:
            return None  # the app says what is wrong with it
        return crowd, Asking(plain.path, stated_s, plain.arrived_s)

    def _refusal(self, crowd: Crowd, asking: Asking, body: bytes) -> OverloadError | None:
        return self._admission.by_head(crowd, asking) or self._admission.by_body(crowd, asking, body)

    def answer(self, refusal: OverloadError, plain: Plain, num_received: int) -> bytes:
        """The answer from the headers on that only such answers have; it is counted as given."""
        error = overloaded(refusal)
        is_anthropic = is_anthropic_path(plain.path)
        body = orjson.dumps(anthropic_error(error) if is_anthropic else openai_error(error))
        name = _request_id(plain)
        also = b"request-id: %b\r\n" % name if is_anthropic else b""
        self._refused_s = time.monotonic()
        self._metrics.count_rejection(refusal.reason.value)
        self.observe(plain, error.status, num_received, len(body))
        return _ANSWER % (refusal.retry_after_s, len(body), name, also, body)

    def observe(self, plain: Plain, status: int, num_received: int, num_sent: int) -> None:
        """Measure a request that has ended here. num_received, num_sent: bytes of the two bodies."""
        self._metrics.observe(
            method="POST",
            handler=plain.path,
            status=status,
            duration_s=time.monotonic() - plain.arrived_s,
            request_bytes=num_received,
            response_bytes=num_sent,
        )

    def _is_known(self, plain: Plain) -> bool:
        if self._keys.is_empty:
            return True
        scope = {"path": plain.path, "headers": list(plain.headers.items())}
        return self._keys.holder(stated_key(scope).encode("latin-1")) is not None


def _request_id(plain: Plain) -> bytes:
    stated = plain.headers.get(b"x-request-id", b"")
    return stated if is_request_id(stated.decode("latin-1")) else new_request_id().encode()


def whole_answer(answer: bytes, default_headers: Iterable[tuple[bytes, bytes]], keeps_alive: bool) -> bytes:
    """answer: of a doorway. default_headers: of every answer."""
    lines = [b"%b: %b\r\n" % header for header in default_headers]
    if not keeps_alive:
        lines.append(b"connection: close\r\n")
    return b"".join((STATUS_LINE[503], *lines, answer))


def shown(client: object) -> str:
    """An address, for the access log."""
    return f"{client[0]}:{client[1]}" if isinstance(client, tuple) else ""


@dataclass(frozen=True, slots=True)
class _Held:
    """A plain request whose body is not all there yet, and the app that it is for if it is not refused."""

    cycle: RequestResponseCycle
    app: Any
    plain: Plain


class GuardedHttpProtocol(BoundedHttpProtocol):
    """Answers what its doorway refuses. A plain request is held until its body is there, counted as inside."""

    doorway: ClassVar[Doorway]
    held: _Held | None = None
    # Since when a first request was there that came whole before its connection had this protocol.
    waited_since_s: float | None = None

    def data_received(self, data: bytes) -> None:
        whole = whole_request(data, self.limits) if self._may_refuse_whole() else None
        answer = Way.OPEN if whole is None else self.doorway.judge(whole, self._arrived_s())
        if whole is None or isinstance(answer, Way):
            super().data_received(data)
            self.waited_since_s = None
            return
        self._unset_keepalive_if_required()
        self.num_messages += 1
        self.is_in_head = False
        self._refuse(answer, whole.keeps_alive, whole.target.decode("ascii"), "1.1")
        self.await_more()

    def _arrived_s(self) -> float:
        return time.monotonic() if self.waited_since_s is None else self.waited_since_s

    def _may_refuse_whole(self) -> bool:
        return self._is_between_requests() and self.doorway.refuses_any()

    def _is_between_requests(self) -> bool:
        """The parser has seen nothing of a request that is not answered."""
        is_in_none = not self.is_in_head or (self.num_messages == 0 and self.num_unparsed_bytes == 0)
        is_open = not self.flow.write_paused and not self.transport.is_closing()
        return is_in_none and not self.is_in_body and self._is_idle() and is_open

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_held(CLIENT_GONE, 0)
        super().connection_lost(exc)

    def answer_408(self) -> int:
        num_sent = super().answer_408()
        self._end_held(408, num_sent)
        return num_sent

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # One that came while another was answered is the app's, and so is all from a client that leaves answers unread.
        is_fresh = cycle.more_body and not self.flow.write_paused
        plain = self.doorway.plain(cycle.scope, self._arrived_s()) if is_fresh else None
        if plain is None:
            super()._start_asgi_task(cycle, app)
            return
        cycle.scope["state"][ARRIVED_S] = plain.arrived_s
        self.held = _Held(cycle, app, plain)
        self.doorway.gate.enter()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.held is None:
            return
        held, self.held = self.held, None
        refusal = self.doorway.refusal(held.plain, bytes(held.cycle.body))
        if refusal is None:
            # It stays inside on its way to the app, which may be told to take in no more meanwhile.
            held.cycle.scope["state"][IS_INSIDE] = True
            super()._start_asgi_task(held.cycle, _leaving(self.doorway.gate, held.app))
        else:
            self.doorway.gate.leave()
            cycle = held.cycle
            cycle.response_started = cycle.response_complete = True
            asked, version = get_path_with_query_string(cycle.scope), cycle.scope["http_version"]
            answer = self.doorway.answer(refusal, held.plain, len(cycle.body))
            self._refuse(answer, cycle.keep_alive, asked, version)

    def _end_held(self, status: int, num_sent: int) -> None:
        """Of a request whose body will not come: measure it, and let it go."""
        if self.held is None:
            return
        held, self.held = self.held, None
        self.doorway.gate.leave()
        self.doorway.observe(held.plain, status, len(held.cycle.body), num_sent)

    def _refuse(self, answer: bytes, keeps_alive: bool, asked: str, http_version: str) -> None:
        """asked: path and query, for the access log."""
        self.transport.write(whole_answer(answer, self.server_state.default_headers, keeps_alive))
        if self.access_log:
            self.doorway.lines.add(shown(self.client), asked, http_version, 503)
        if not keeps_alive:
            self.transport.close()
        self.on_response_complete()


def _leaving(gate: Gate, app: Any) -> Any:
    """The app for a request that is inside already, and leaves when it is answered."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        finally:
            gate.leave()

    return answer


def guarded_http_protocol(limits: Limits, doorway: Doorway) -> type[GuardedHttpProtocol]:
    """A protocol class with these limits and this doorway."""
    return type("LimitedHttpProtocol", (GuardedHttpProtocol,), {"limits": limits, "doorway": doorway})
