"""Accepts connections; while requests are refused, all that came in a little while at a time.

Beside an engine that computes, most of what a refusal costs is the interruption: a processor is taken from a step, and
caches are filled anew. So under overload newcomers are looked at a few dozen times a second, and what is refused among
them is answered on its bare socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.server import ServerState

from noria.server.doorway import Doorway, Way, shown, whole_answer
from noria.server.limits import Limits
from noria.server.sockets import BACKLOG
from noria.server.whole_request import WholeRequest, whole_request

logger = logging.getLogger("noria.server")

_LOOK_EVERY_S = 0.02  # at newcomers, while requests are refused
_MAX_LOOKS = 3  # at one that passes, before it is let in whoever else has been
_MAX_PER_WAKE_UP = 8  # accepted before others on the loop, and other processes, get their turn
_MAX_PER_LOOK = 64
_MAX_PEEK_BYTES = 65536
_BACK_OFF_S = 0.5  # when the system gives no more connections


@dataclass(frozen=True, slots=True)
class AcceptorConfig:
    """What connections are for.

    make_protocol: of one; told since when a whole request waits there, or None. doorway: None where nothing is refused
    on the way in. state: of the web server. is_logged: a request gets a line.
    """

    make_protocol: Callable[[float | None], asyncio.Protocol]
    tls: ssl.SSLContext | None
    doorway: Doorway | None
    limits: Limits
    state: ServerState
    is_logged: bool


@dataclass(slots=True)
class _Newcomer:
    """A connection without a protocol. came_s: when it was accepted, by time.monotonic.

    whole: what it sent, once it may be answered on the bare socket. num_looks: at which others were let in before it.
    """

    connection: socket.socket
    address: object
    came_s: float
    whole: WholeRequest | None = None
    num_looks: int = 0


class Acceptor:
    """Of one listening socket, which may be shared with other processes. For the event loop's thread."""

    def __init__(self, listener: socket.socket, config: AcceptorConfig) -> None:
        self._listener = listener
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_let_one_in = False  # in this look, of those that the doorway judges
        self._held: list[_Newcomer] = []  # for the next look
        self._entering: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._watch()

    def close(self) -> None:
        """Accept nobody any more; who is here already is let in, to be told so. The socket is left as it is."""
        self._loop.remove_reader(self._listener.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for task in self._entering if self._config.tls is not None else ():
            task.cancel()  # a handshake may never end
        for one in self._held:
            self._let_in(one)
        self._held = []

    def _watch(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener.fileno(), self._on_ready)

    def _look_in(self, delay_s: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(delay_s, self._look)

    def _on_ready(self) -> None:
        if self._is_refusing():
            self._look_in(_LOOK_EVERY_S)
        elif not self._accept(_MAX_PER_WAKE_UP):
            self._look_in(_BACK_OFF_S)

    def _look(self) -> None:
        delay_s = _LOOK_EVERY_S
        self._has_let_one_in = False
        try:
            held, self._held = self._held, []
            for one in held:
                self._take(one)
            if not self._accept(_MAX_PER_LOOK):
                delay_s = _BACK_OFF_S
        finally:  # whatever became of one connection, others come
            if self._held or self._is_refusing() or delay_s == _BACK_OFF_S:
                self._look_in(delay_s)
            else:
                self._watch()

    def _is_refusing(self) -> bool:
        doorway = self._config.doorway
        return doorway is not None and doorway.is_refusing()

    def _accept(self, most: int) -> bool:
        """False when the system gives no more connections."""
        for _ in range(most):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return True  # there are no more, or another process has them
            except ConnectionError:
                continue  # it has left again
            except OSError as error:
                logger.warning("no connection can be accepted: %s", error.strerror)
                return False
            connection.setblocking(False)
            self._take(_Newcomer(connection, address, time.monotonic()))
        return True

    def _take(self, one: _Newcomer) -> None:
        """Answer it, let it in, or hold it: several that passed by the same numbers would be too many inside, and the
        engine's refusal costs far more. What the doorway does not judge waits for nobody.
        """
        if one.whole is None:
            one.whole = self._whole(one.connection)
        whole, judged = one.whole, self._judged(one)
        if isinstance(judged, bytes) and whole is not None:
            self._answer(one, whole, judged)
        elif judged is Way.PASSES and self._has_let_one_in and one.num_looks < _MAX_LOOKS:
            one.num_looks += 1
            self._held.append(one)
        else:
            self._has_let_one_in |= judged is Way.PASSES
            self._let_in(one)

    def _whole(self, connection: socket.socket) -> WholeRequest | None:
        """What it sent, if that may be answered on the bare socket. One that is to be kept needs a protocol anyway,
        which refuses by the same rules.
        """
        if self._config.tls is not None or not self._is_refusing():
            return None
        try:
            data = connection.recv(_MAX_PEEK_BYTES, socket.MSG_PEEK)
        except OSError:
            return None  # it has said nothing yet, or has left
        whole = whole_request(data, self._config.limits)
        return None if whole is None or whole.keeps_alive else whole

    def _judged(self, one: _Newcomer) -> bytes | Way:
        doorway = self._config.doorway
        return Way.OPEN if one.whole is None or doorway is None else doorway.judge(one.whole, one.came_s)

    def _answer(self, one: _Newcomer, whole: WholeRequest, answer: bytes) -> None:
        with one.connection as connection, contextlib.suppress(OSError):  # it has left
            connection.recv(_MAX_PEEK_BYTES)  # what is left unread would cut the answer off
            # It is less than what a fresh connection takes at once.
            connection.send(whole_answer(answer, self._config.state.default_headers, keeps_alive=False))
        doorway = self._config.doorway
        if self._config.is_logged and doorway is not None:
            doorway.lines.add(shown(one.address), whole.target.decode("ascii"), "1.1", 503)

    def _let_in(self, one: _Newcomer) -> None:
        task = self._loop.create_task(self._enter(one))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _enter(self, one: _Newcomer) -> None:
        # The time of a request that was all here has run since then.
        waited_since_s = None if one.whole is None else one.came_s
        with contextlib.suppress(OSError):  # it has left, or does not speak TLS as we do
            await self._loop.connect_accepted_socket(
                lambda: self._config.make_protocol(waited_since_s), one.connection, ssl=self._config.tls
            )
