"""The seam between the engine and everything that sends it requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from noria.config.errors import NoriaError
from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import EngineRequest, EngineStats

if TYPE_CHECKING:
    from noria.engine.crowd import Crowd
    from noria.engine.records import Recorder

# Called by the engine's thread, once a step, with the news of the requests that were submitted with it.
Sink = Callable[[Sequence[Delta]], None]


def verdict_of(take: Callable[[], None]) -> Future[None]:
    """A verdict that is known at once: what `take` does."""
    verdict: Future[None] = Future()
    try:
        take()
    except NoriaError as error:
        verdict.set_exception(error)
    else:
        verdict.set_result(None)
    return verdict


class EngineClient(Protocol):
    """An engine, wherever it runs. All methods may be called from any thread and return at once."""

    def submit(self, requests: Sequence[EngineRequest], sink: Sink) -> Future[None]:
        """Queue requests; each gets deltas through `sink` until one with a finish reason.

        The verdict is done once they are all queued. Else none of them is, and it raises RequestError for a request
        that can never be served, OverloadError for one that cannot be served now, EngineError when the engine is dead
        or shut down.
        """
        ...

    def cancel(self, request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
        """End requests in whatever state they are, freeing their blocks before the next step is planned.

        finish: what the last delta and the record say; STOP for one whose text has reached its end. Unknown
        and finished ids are ignored.
        """
        ...

    def stats(self) -> EngineStats: ...

    def crowd(self) -> Crowd | None:
        """What a request would meet now; None where that is not known. What it refuses, `submit` would refuse."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Records of recent steps and requests."""
        ...

    def shutdown(self) -> None:
        """Stop the engine. Requests still in it get a last delta with FinishReason.ABORT."""
        ...
