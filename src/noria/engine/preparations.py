"""Requests that wait for what constrains them: nobody else waits with them, and the engine has not heard of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from noria.config.errors import EngineError, NoriaError, OverloadError, Refusal, RequestError
from noria.config.tenant import ANYBODY, Tenant
from noria.engine.client import verdict_of
from noria.engine.messages import EngineRequest
from noria.structured.api import Constraints

log = logging.getLogger(__name__)

MAX_WAITING = 256  # users' requests whose constraints are being made
MAX_WAITING_OF_ONE = 64  # tenant, where its requests are told apart
_RETRY_AFTER_S = 1


@dataclass(slots=True)
class _Waiting:
    """cancelled: ids of those that nobody wants any more."""

    request_ids: tuple[str, ...]
    tenant: Tenant
    cancelled: tuple[str, ...] = ()


class Preparations:
    """Thread-safe."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._lock = threading.Lock()  # guards the two below
        self._waiting: list[_Waiting] = []
        self._ids: set[str] = set()  # of all of them

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._ids

    def begin(
        self,
        requests: Sequence[EngineRequest],
        take: Callable[[], None],
        cancel: Callable[[Sequence[str]], None],
    ) -> Future[None]:
        """Get their constraints made, then have them taken: the verdict of both.

        take: hands them to the engine, or raises. cancel: is told, once they are taken, of those cancelled meanwhile.
        """
        waiting = _Waiting(tuple(request.request_id for request in requests), requests[0].tenant)
        entered = verdict_of(lambda: self._enter(waiting))
        if entered.exception() is not None:
            return entered
        verdict: Future[None] = Future()

        def settle(made: Future[None]) -> None:
            error = _error_of(made, take)
            if error is not None:  # while nobody else can have their ids
                self._constraints.forget(waiting.request_ids)
            cancelled = self._leave(waiting)  # after they were taken: from then on, the engine can be told
            if error is not None:
                verdict.set_exception(error)
                return
            if cancelled:
                cancel(cancelled)
            verdict.set_result(None)

        self._prepared(requests).add_done_callback(settle)
        return verdict

    def _prepared(self, requests: Sequence[EngineRequest]) -> Future[None]:
        try:
            return self._constraints.prepare(requests)
        except Exception as error:  # as of threads that have been ended: whoever waits is to hear of it
            failed: Future[None] = Future()
            failed.set_exception(error)
            return failed

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Those of them that are here end as soon as they are taken."""
        if not self._ids:
            return
        with self._lock:
            for waiting in self._waiting:
                waiting.cancelled += tuple(one for one in request_ids if one in waiting.request_ids)

    def _enter(self, waiting: _Waiting) -> None:
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                raise _too_many(MAX_WAITING, "requests")
            own = [one for one in self._waiting if one.tenant.name == waiting.tenant.name]
            if waiting.tenant.name != ANYBODY.name and len(own) >= MAX_WAITING_OF_ONE:
                raise _too_many(MAX_WAITING_OF_ONE, "requests of the same API key")
            taken = next((one for one in waiting.request_ids if one in self._ids), None)
            if taken is not None:
                raise RequestError(f"request id {taken!r} is in use", "request_id")
            self._waiting.append(waiting)
            self._ids.update(waiting.request_ids)

    def _leave(self, waiting: _Waiting) -> tuple[str, ...]:
        """Those cancelled meanwhile."""
        with self._lock:
            self._waiting.remove(waiting)
            self._ids.difference_update(waiting.request_ids)
            return waiting.cancelled


def _too_many(count: int, what: str) -> OverloadError:
    text = f"{count} {what} wait for their grammars or decoding rules to be read."
    return OverloadError(text, Refusal.QUEUED_REQUESTS, _RETRY_AFTER_S)


def _error_of(made: Future[None], take: Callable[[], None]) -> NoriaError | None:
    """What kept requests from being taken, whatever it was: a verdict that never comes would be waited for for ever."""
    try:
        made.result()
        take()
    except NoriaError as error:
        return error
    except Exception as error:
        log.exception("a request could not be made ready")
        return EngineError(f"the request could not be made ready: {type(error).__name__}")
    return None
