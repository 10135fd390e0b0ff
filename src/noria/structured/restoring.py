"""Sequences that a grammar process is told of again after one was lost, while the engine's steps go on without them."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from noria.config.errors import NoriaError
from noria.structured.asking import Followed
from noria.structured.preparing import Preparing

_MAX_LOSSES = 3  # of a sequence, one after the other, without a token in between
# For one sequence, the start of a process included: that of a grammar that is read at once, and of any other.
_QUICK_LIMIT_S = 30.0
_SLOW_LIMIT_S = 120.0


@dataclass(slots=True, eq=False)
class _Lost:
    """A sequence, from when it was found lost. asked: from when it has its turn, at begun_s, on."""

    request_id: str
    sequence: Followed
    limit_s: float
    begun_s: float = 0.0
    asked: Future[None] | None = None
    is_wanted: bool = True

    @property
    def is_late(self) -> bool:
        return self.asked is not None and time.monotonic() - self.begun_s > self.limit_s


class _Lane:
    """Asks about one sequence after the other: one that no process survives fails alone."""

    def __init__(self, preparing: Preparing) -> None:
        self._preparing = preparing
        self._lock = threading.Lock()  # guards what follows: turns end on whatever thread hears of it
        self._waiting: deque[_Lost] = deque()
        self._current: _Lost | None = None

    def add(self, lost: _Lost) -> None:
        with self._lock:
            self._waiting.append(lost)
        self._go_on_after(None)

    def _go_on_after(self, last: _Lost | None) -> None:
        """last: whose turn ends."""
        with self._lock:
            if self._current is not last:
                return
            wanted = (one for one in iter(self._take, None) if one.is_wanted)
            self._current = lost = next(wanted, None)
        if lost is not None:
            lost.begun_s = time.monotonic()
            outputs = {lost.request_id: lost.sequence.outputs}
            lost.asked = self._preparing.ask(lost.sequence.grammar, outputs)
            lost.asked.add_done_callback(lambda _: self._end(lost))

    def _take(self) -> _Lost | None:
        return self._waiting.popleft() if self._waiting else None

    def _end(self, lost: _Lost) -> None:
        if not lost.is_wanted:  # its process may have learnt of it after it was told to forget it
            self._preparing.forget((lost.request_id,))
        self._go_on_after(lost)


class Restoring:
    """On the engine's thread, but for `forget`. What takes long to read keeps only its like waiting."""

    def __init__(self, preparing: Preparing) -> None:
        self._preparing = preparing
        self._quick, self._slow = _Lane(preparing), _Lane(preparing)
        self._lost: dict[str, _Lost] = {}

    def begin(self, sequences: Mapping[str, Followed]) -> dict[str, str]:
        """Of sequences that no process knows any more. Returns, by request id, why some are given up."""
        given_up: dict[str, str] = {}
        for request_id, sequence in sequences.items():
            sequence.num_lost += 1
            if sequence.num_lost > _MAX_LOSSES:
                given_up[request_id] = "what reads grammars ended again and again"
                continue
            is_slow = self._preparing.is_slow(sequence.grammar)
            limit_s = _SLOW_LIMIT_S if is_slow else _QUICK_LIMIT_S
            self._lost[request_id] = lost = _Lost(request_id, sequence, limit_s)
            (self._slow if is_slow else self._quick).add(lost)
        return given_up

    def look(self, request_ids: Sequence[str]) -> tuple[set[str], dict[str, str]]:
        """Which of them cannot be asked about yet, and why some never can be again. The others can."""
        unready: set[str] = set()
        failures: dict[str, str] = {}
        for request_id in request_ids if self._lost else ():
            lost = self._lost.get(request_id)
            if lost is None:
                continue
            if lost.asked is None or not lost.asked.done():
                if not lost.is_late:
                    unready.add(request_id)
                    continue
                self._give_up(lost)
            self._lost.pop(request_id, None)
            lost.sequence.num_told = len(lost.sequence.outputs)
            if error := _error_of(lost):
                failures[request_id] = error
        return unready, failures

    def wait(self, timeout_s: float) -> None:
        """Until there may be something to `look` at, so long at most."""
        asked = [lost.asked for lost in list(self._lost.values()) if lost.asked is not None]
        concurrent.futures.wait(asked, timeout_s, concurrent.futures.FIRST_COMPLETED)

    def forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            if (lost := self._lost.pop(request_id, None)) is not None:
                lost.is_wanted = False

    def _give_up(self, lost: _Lost) -> None:
        """And with it the process, which cannot be stopped from reading it otherwise."""
        process = self._preparing.process
        if lost.asked is not None and lost.asked.cancel() and process is not None:
            self._preparing.end(process)


def _error_of(lost: _Lost) -> str | None:
    assert lost.asked is not None, f"{lost.request_id} had no turn"
    try:
        lost.asked.result()
    except concurrent.futures.CancelledError:
        return f"{lost.sequence.grammar.field} took too long to follow"
    except NoriaError as error:
        return str(error)
    return None
