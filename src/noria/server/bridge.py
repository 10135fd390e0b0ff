"""From the engine's thread to the event loop and back: one hop a step, however many tokens it made."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future

from noria.config.errors import NoriaError
from noria.core.outputs import Delta, FinishReason
from noria.engine.client import EngineClient
from noria.engine.messages import EngineRequest

_ENGINE_ID = re.compile(r"(.+)\.[\d-]+", re.DOTALL)
_PREFIX = re.compile(r"[a-z]+[-_]")  # that a protocol puts before a client's own id


class Inbox:
    """Deltas of one HTTP request that its handler has not taken yet. For the event loop's thread alone."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._num_tokens = 0  # of the deltas
        self._max_tokens = math.inf
        self._on_excess: Callable[[], None] = lambda: None
        self.tenant = ""  # the name of whose request it is
        self.is_aborted = False
        self.is_held = False  # whoever takes waits for a client to read

    def put(self, delta: Delta) -> None:
        if self._error is not None:
            return
        self._deltas.append(delta)
        self._num_tokens += len(delta.token_ids)
        if self._num_tokens > self._max_tokens and self.is_held:
            self._deltas.clear()
            self._on_excess()
        self.nudge()

    def bound(self, max_tokens: int, on_excess: Callable[[], None]) -> None:
        """When more tokens wait while we are held, drop them and call `on_excess`, which has to `fail` us."""
        self._max_tokens = max_tokens
        self._on_excess = on_excess

    def fail(self, error: Exception) -> None:
        """Make `take` raise `error` once it has given what came before; what comes later is dropped."""
        self._error = error
        self.nudge()

    def nudge(self) -> None:
        """End a waiting `take`, even with nothing to give."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Delta]:
        """Everything that has come since the last call; waits for something, or a nudge, if nothing has."""
        if not self._deltas and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._deltas and self._error is not None:
            raise self._error
        deltas, self._deltas = self._deltas, []
        self._num_tokens = 0
        return deltas


class Bridge:
    """Submits to the engine and hands each delta to the inbox of its request.

    All methods but the sink are for the event loop's thread. One sink serves every request, so a step of the
    engine costs one wake-up of the loop; steps that come faster than the loop turns share one.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._inboxes: dict[str, Inbox] = {}  # by engine request id; until the last delta or a release
        self._loop: asyncio.AbstractEventLoop | None = None
        self._undecided: set[asyncio.Future[None]] = set()  # submissions whose verdict is not known
        self._lock = threading.Lock()
        self._arrived: list[Sequence[Delta]] = []  # guarded by _lock; from the engine's thread
        self._sink = self._on_deltas  # one object, so that the engine can see that it is the same one

    @property
    def num_open(self) -> int:
        """Sequences submitted and neither finished nor cancelled."""
        return len(self._inboxes)

    @property
    def num_requests(self) -> int:
        """Requests of clients with sequences among those."""
        return len(set(self._inboxes.values()))

    async def submit(self, requests: Sequence[EngineRequest], inbox: Inbox) -> None:
        """Queue sequences whose deltas go to `inbox`. Raises RequestError and EngineError as the engine does.

        Whoever gives up waiting takes its sequences along.
        """
        self._follow(asyncio.get_running_loop())
        for request in requests:
            self._inboxes[request.request_id] = inbox
            inbox.tenant = request.tenant.name
        try:
            await self._decided(self._client.submit(requests, self._sink))
        except NoriaError:
            # The engine's own word that it took none of them; there is nothing that it could end.
            for request in requests:
                self._inboxes.pop(request.request_id, None)
            raise
        except BaseException:
            # Nobody may be there to say that it took them: what it has not taken, it passes over.
            self.cancel([request.request_id for request in requests])
            raise

    def stop(self, request_id: str) -> None:
        """End a sequence whose text has reached a stop string, if it still runs: a success in the records."""
        if self._inboxes.pop(request_id, None) is not None:
            self._client.cancel((request_id,), FinishReason.STOP)

    def cancel(self, request_ids: Sequence[str]) -> None:
        """End those of the sequences that still run; nothing more of them is delivered."""
        running = [
            request_id for request_id in request_ids if self._inboxes.pop(request_id, None) is not None
        ]
        if running:
            self._client.cancel(running)

    def abort(self, client_ids: Collection[str] | None, tenant: str) -> list[str]:
        """End requests of a tenant with what they have: their last delta says ABORT. The ids of their replies.

        client_ids: ids as clients know them, of replies or their own; None: all of the tenant's.
        """
        running = [
            (request_id, reply_id)
            for request_id, inbox in self._inboxes.items()
            if inbox.tenant == tenant and _is_meant(reply_id := reply_id_of(request_id), client_ids)
        ]
        for request_id, _ in running:
            inbox = self._inboxes.pop(request_id)
            inbox.is_aborted = True
            inbox.put(Delta(request_id, finish=FinishReason.ABORT))
        if running:
            self._client.cancel([request_id for request_id, _ in running])
        return list(dict.fromkeys(reply_id for _, reply_id in running))

    def fail_all(self, error: Exception) -> None:
        """Make every open request end with `error`, after what the engine has sent so far."""
        self._dispatch()
        for waiting in self._undecided:
            if not waiting.done():
                waiting.set_exception(error)
        for inbox in set(self._inboxes.values()):
            inbox.fail(error)

    async def _decided(self, verdict: Future[None]) -> None:
        # An engine in this process knows at once; what is known need not be waited for.
        if verdict.done():
            verdict.result()
            return
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def tell(done: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_pass_on, done, told)

        verdict.add_done_callback(tell)
        self._undecided.add(told)
        try:
            await told
        finally:
            self._undecided.discard(told)

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on deltas wake this loop. One that closed before it looked has left some behind."""
        if loop is not self._loop:
            self._loop = loop
            self._dispatch()

    def _on_deltas(self, deltas: Sequence[Delta]) -> None:
        # On the engine's thread.
        with self._lock:
            self._arrived.append(deltas)
            if len(self._arrived) > 1:
                return  # the loop has been told and has not looked yet
        try:
            assert self._loop is not None, "the engine sent deltas before anything was submitted"
            self._loop.call_soon_threadsafe(self._dispatch)
        except RuntimeError:
            # The loop is closed: the server has gone, nobody reads this.
            with self._lock:
                self._arrived.clear()

    def _dispatch(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        for deltas in arrived:
            for delta in deltas:
                self._deliver(delta)

    def _deliver(self, delta: Delta) -> None:
        if delta.finish is None:
            inbox = self._inboxes.get(delta.request_id)
        else:
            inbox = self._inboxes.pop(delta.request_id, None)
        if inbox is not None:
            inbox.put(delta)


def reply_id_of(engine_request_id: str) -> str:
    """The id of the reply that a sequence is for: see Service.engine_request_id, Turn and expand_choices."""
    found = _ENGINE_ID.fullmatch(engine_request_id)
    return found[1] if found else engine_request_id


def _is_meant(reply_id: str, client_ids: Collection[str] | None) -> bool:
    return client_ids is None or reply_id in client_ids or _PREFIX.sub("", reply_id, count=1) in client_ids


def _pass_on(verdict: Future[None], told: asyncio.Future[None]) -> None:
    if told.done():
        return  # nobody waits any more
    error = verdict.exception()
    if error is None:
        told.set_result(None)
    else:
        told.set_exception(error)
