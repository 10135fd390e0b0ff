"""The HTTP/1.1 protocol with bounds on what its base class takes without any: headers, and a client's time."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from noria.server.connection import ABORT
from noria.server.errors import ApiError
from noria.server.limits import Limits
from noria.server.patience import Awaited, Timer, UnreadWatch

_MIN_BYTES_PER_S = 1024  # of a body, once its time is over
# Behind an answer: what is on its way when a client hears that a small limit was passed.
_SPARE_BYTES = 1 << 16
_PATHLESS = {"path": ""}


class HeadersTooLarge(Exception):
    """Raised inside the parser, which answers 400 and closes the connection."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses more than limits.max_headers headers or limits.max_header_bytes of them, a request that does not come,
    and a client that does not read.

    A body is taken in after its answer too, and dropped, since many a client reads only when it has sent all. What is
    more than twice as long as a body may be ends with the connection.
    """

    limits: ClassVar[Limits]
    num_header_bytes = 0  # of the parts that the parser has handed over
    num_unparsed_bytes = 0  # received since the head began, while it has not ended
    num_body_bytes = 0  # since patience was last over
    num_whole_body_bytes = 0
    num_messages = 0  # begun
    is_in_head = True
    is_in_body = False
    awaited = (Awaited.NOTHING, 0)  # of which message

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.unread = UnreadWatch(self.loop, transport, self.limits.send_timeout_s)
        self.overdue = Timer(self.loop, self.on_overdue)
        self.await_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self.unread.end()
        self.overdue.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The parser keeps an unfinished name or value to itself and copies it with every piece: an endless one
        # would cost ever more, so it is counted here.
        if self.is_in_head and self.num_unparsed_bytes > self.limits.max_header_bytes:
            self.send_400_response("The headers are too large.")
            return
        super().data_received(data)
        self.num_unparsed_bytes = self.num_unparsed_bytes + len(data) if self.is_in_head else 0
        self.await_more()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self.unread.begin()

    # What the parser and the writer tell

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()  # an answer given while the same bytes are parsed has set it
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"abort": self.transport.abort}}
        self.num_header_bytes = self.num_unparsed_bytes = 0
        self.num_body_bytes = self.num_whole_body_bytes = 0
        self.num_messages += 1
        self.is_in_head = True

    def on_headers_complete(self) -> None:
        self.is_in_head, self.is_in_body = False, True
        super().on_headers_complete()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if len(self.headers) >= self.limits.max_headers:
            raise HeadersTooLarge
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self.num_body_bytes += len(body)
        self.num_whole_body_bytes += len(body)
        super().on_body(body)
        most = 2 * self.limits.max_body_bytes + _SPARE_BYTES
        if self.cycle.response_complete and self.num_whole_body_bytes > most:
            self.transport.close()

    def on_message_complete(self) -> None:
        self.is_in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_in_head:
            self._unset_keepalive_if_required()  # the next request has begun: it gets the time of a head
        self.unread.begin()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread.begin()

    def resume_writing(self) -> None:
        self.unread.end()
        super().resume_writing()

    # Time

    def await_more(self) -> None:
        awaited = (self._awaited(), self.num_messages)
        if awaited == self.awaited:
            return
        self.awaited = awaited
        if awaited[0] is Awaited.NOTHING:
            self.overdue.stop()
        else:
            self.overdue.start(self._patience_s())

    def on_overdue(self) -> None:
        left_s = self._patience_left_s()
        if left_s > 0:
            self.overdue.start(left_s)
            return
        if self._is_idle() and not (self.is_in_head and self.num_messages > 0):
            self.transport.close()  # nothing is asked, or what was asked is answered
        else:
            self.answer_408()
        self.unread.begin()

    def _awaited(self) -> Awaited:
        if self.transport.is_closing():
            return Awaited.NOTHING
        if self.is_in_body:
            return Awaited.BODY
        # What is no request yet (an empty line, say) has ended the time that an idle connection gets.
        is_stirred = self._is_idle() and self.timeout_keep_alive_task is None
        return Awaited.HEAD if self.is_in_head or is_stirred else Awaited.NOTHING

    def _is_idle(self) -> bool:
        return not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    def _patience_s(self) -> float:
        is_body = self.awaited[0] is Awaited.BODY
        return self.limits.body_timeout_s if is_body else self.limits.head_timeout_s

    def _patience_left_s(self) -> float:
        """When patience is over: how much there is for a reason; it is not the client that holds things up then."""
        if self.awaited[0] is Awaited.HEAD:
            is_answering = not self._is_idle()  # an earlier request
        else:
            is_answering = bool(self.pipeline) or (
                self.cycle.response_started and not self.cycle.response_complete
            )
        if is_answering or self.flow.read_paused:
            return self._patience_s()
        earned, self.num_body_bytes = self.num_body_bytes, 0
        return earned / _MIN_BYTES_PER_S

    def answer_408(self) -> int:
        """And close the connection. Returns how many bytes the answer's body has."""
        what, limit_s = self.awaited[0].value, self._patience_s()
        error = ApiError(f"The request's {what} did not come within {limit_s:g} s.", 408)
        scope: Any = self.scope if self.is_in_body else _PATHLESS
        response = error.response(scope)
        lines = [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(
            STATUS_LINE[408] + b"\r\n".join((*lines, b"connection: close", b"", bytes(response.body)))
        )
        self.transport.close()
        return len(response.body)

    def _count(self, num_bytes: int) -> None:
        self.num_header_bytes += num_bytes
        if self.num_header_bytes > self.limits.max_header_bytes:
            raise HeadersTooLarge


def bounded_http_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """A protocol class with these limits."""
    return type("LimitedHttpProtocol", (BoundedHttpProtocol,), {"limits": limits})
