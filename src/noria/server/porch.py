"""Takes connections in; while requests are refused, all that came in a little while at a time.

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

from noria.server.doorway import Doorway, shown, whole_answer
from noria.server.limits import Limits
from noria.server.sockets import BACKLOG
from noria.server.whole_request import whole_request

logger = logging.getLogger("noria.server")

_LATELY_S = 0.1  # after a refusal others are expected
_LOOK_EVERY_S = 0.02  # at newcomers then
_MOST_AT_ONCE = 8  # taken in before others on the loop, and other processes, get their turn
_MOST_AT_A_LOOK = 64
_MOST_PEEKED = 65536  # bytes
_REST_S = 0.5  # when the system gives no more connections


@dataclass(frozen=True, slots=True)
class House:
    """What connections are for. make_protocol: of one. doorway: None where nothing is refused on the way in.

    state: of the web server. is_logged: a request gets a line.
    """

    make_protocol: Callable[[], asyncio.Protocol]
    tls: ssl.SSLContext | None
    doorway: Doorway | None
    limits: Limits
    state: ServerState
    is_logged: bool


class Porch:
    """Accepts on one listening socket, which may be shared with other processes. For the event loop's thread."""

    def __init__(self, listener: socket.socket, house: House) -> None:
        self._listener = listener
        self._house = house
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_passed = (
            False  # in this look, a request that the doorway would refuse if there were more inside
        )
        self._entering: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._watch()

    def close(self) -> None:
        """Nobody is taken in any more. The socket is left as it is."""
        self._loop.remove_reader(self._listener.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for task in self._entering:
            task.cancel()

    def _watch(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        if self._is_crowded():
            self._loop.remove_reader(self._listener.fileno())
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        else:
            self._take(_MOST_AT_ONCE)

    def _look(self) -> None:
        is_well = self._take(_MOST_AT_A_LOOK)
        if is_well and self._is_crowded():
            self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        elif is_well:
            self._watch()

    def _is_crowded(self) -> bool:
        doorway = self._house.doorway
        return doorway is not None and time.monotonic() - doorway.refused_s < _LATELY_S

    def _take(self, most: int) -> bool:
        """False when there is to be a rest, after which we are watching again."""
        self._has_passed = False
        for _ in range(most):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return True  # there are no more, or another process has them
            except ConnectionError:
                continue  # it has left again
            except OSError as error:
                logger.warning("no connection can be taken in: %s", error.strerror)
                self._loop.remove_reader(self._listener.fileno())
                self._timer = self._loop.call_later(_REST_S, self._watch)
                return False
            connection.setblocking(False)
            if not self._is_refused(connection, address):
                self._let_in(connection)
            if self._has_passed:
                return True  # others wait until it is counted, or all would pass by the same numbers
        return True

    def _is_refused(self, connection: socket.socket, address: object) -> bool:
        """Whether it has been, and is closed."""
        doorway = self._house.doorway
        if doorway is None or self._house.tls is not None or not self._is_crowded():
            return False
        try:
            data = connection.recv(_MOST_PEEKED, socket.MSG_PEEK)
            whole = whole_request(data, self._house.limits)
            if whole is None or whole.keeps_alive or not doorway.judges(whole):
                return False  # a connection that is to be kept needs a protocol anyway, which refuses by the same rules
            answer = doorway.answer_to(whole)
            if answer is None:
                self._has_passed = True
                return False
            connection.recv(len(data))  # what is left unread would cut the answer off
            # It is less than what a fresh connection takes at once.
            connection.send(whole_answer(answer, self._house.state.default_headers, keeps_alive=False))
        except BlockingIOError:
            return False  # it has said nothing yet
        except OSError:
            connection.close()  # it has left
            return True
        connection.close()
        if self._house.is_logged:
            doorway.lines.add(shown(address), whole.target.decode("ascii"), "1.1", 503)
        return True

    def _let_in(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._enter(connection))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _enter(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it has left, or does not speak TLS as we do
            await self._loop.connect_accepted_socket(
                self._house.make_protocol, connection, ssl=self._house.tls
            )
