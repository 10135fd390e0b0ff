"""Which sequences the server ended because their text reached a stop string."""

from __future__ import annotations

import threading


class StopNotes:
    """The engine sees such an end as a cancel; this tells the metrics that it was a success. Thread-safe.

    A note lives from the stop until the engine's last delta for the sequence.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._lock = threading.Lock()

    def add(self, request_id: str) -> None:
        with self._lock:
            self._ids.add(request_id)

    def discard(self, request_id: str) -> None:
        with self._lock:
            self._ids.discard(request_id)

    def __contains__(self, request_id: str) -> bool:
        with self._lock:
            return request_id in self._ids

    def __len__(self) -> int:
        with self._lock:
            return len(self._ids)
