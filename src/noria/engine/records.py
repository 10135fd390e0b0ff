"""Records of recent steps and requests, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from noria.engine.messages import RequestRecord, StepRecord


class RecordListener(Protocol):
    """Told of every record as it is made, on the engine's thread; must be quick and must not raise."""

    def on_step(self, record: StepRecord) -> None: ...

    def on_request(self, record: RequestRecord) -> None: ...


class Recorder:
    """Keeps the latest records and passes each to the listeners.

    max_steps, max_requests: how many of the latest are kept. Readable from any thread.
    """

    def __init__(self, max_steps: int = 8192, max_requests: int = 8192) -> None:
        self._steps: deque[StepRecord] = deque(maxlen=max_steps)
        self._requests: deque[RequestRecord] = deque(maxlen=max_requests)
        self._listeners: tuple[RecordListener, ...] = ()

    def add_listener(self, listener: RecordListener) -> None:
        self._listeners = (*self._listeners, listener)

    def record_step(self, record: StepRecord) -> None:
        self._steps.append(record)
        for listener in self._listeners:
            listener.on_step(record)

    def record_request(self, record: RequestRecord) -> None:
        self._requests.append(record)
        for listener in self._listeners:
            listener.on_request(record)

    def steps(self) -> list[StepRecord]:
        """The latest steps, oldest first."""
        return _snapshot(self._steps)

    def requests(self) -> list[RequestRecord]:
        """The latest finished requests, oldest first."""
        return _snapshot(self._requests)


def _snapshot(records: deque) -> list:
    # A deque refuses to be copied while the engine's thread appends; that lasts microseconds.
    while True:
        try:
            return list(records)
        except RuntimeError:
            continue
