"""Keeps from steps the rules that were late again and again: each time they hold everybody's step up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MAX_LATE = 3  # steps in a row
REST_S = 60.0  # before it is tried again
_MAX_KEPT = 4096

_Key = tuple[str, str]  # tenant, and the rule's entry point


@dataclass(slots=True)
class _Record:
    num_late: int = 0
    until_s: float = 0.0


class Quarantine:
    """Thread-safe. By tenant: what one asks of a rule may be why it is late.

    now_s: a clock that only goes forward.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._records: dict[_Key, _Record] = {}

    def rest_s(self, tenant: str, target: str) -> float:
        """How long it is not to be used; 0 where it may be."""
        with self._lock:
            record = self._records.get((tenant, target))
            return 0.0 if record is None else max(0.0, record.until_s - self._now_s())

    def was_late(self, tenant: str, target: str) -> None:
        """Once it has been MAX_LATE times, each time more puts it to rest again. Not kept in mind where all that are
        rest.
        """
        with self._lock:
            record = self._records.get((tenant, target))
            if record is None:
                if not self._has_room():
                    return
                record = self._records[tenant, target] = _Record()
            record.num_late += 1
            if record.num_late >= MAX_LATE:
                record.until_s = self._now_s() + REST_S

    def answered(self, tenant: str, target: str) -> None:
        """What it was late before counts no more, unless it rests: others of it may be done yet."""
        if not self._records:  # as a rule there is none
            return
        with self._lock:
            record = self._records.get((tenant, target))
            if record is not None and record.until_s <= self._now_s():
                del self._records[tenant, target]

    def _has_room(self) -> bool:
        """For one more, instead of the oldest that does not rest where there are too many."""
        if len(self._records) < _MAX_KEPT:
            return True
        now_s = self._now_s()
        oldest = next((key for key, record in self._records.items() if record.until_s <= now_s), None)
        if oldest is None:
            return False
        del self._records[oldest]
        return True
