"""Sequences that a grammar process is told of again after one was lost, while the engine's steps go on without them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from noria.config.errors import NoriaError
from noria.structured.asking import Followed
from noria.structured.preparing import Preparing

_MAX_LOSSES = 3  # of a sequence, one after the other, without a token in between


@dataclass(slots=True, eq=False)
class _Lost:
    """A sequence, from when it was found lost. asked: from when it has its turn on."""

    sequence: Followed
    asked: Future[None] | None = None
    is_wanted: bool = True


class _Lane:
    """Asks about one sequence after the other: one that no process survives fails alone.

    note_end: told of each whose turn has ended, on whatever thread hears of it.
    """

    def __init__(self, preparing: Preparing, note_end: Callable[[], None]) -> None:
        self._preparing = preparing
        self._note_end = note_end
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
            sequence = lost.sequence
            lost.asked = self._preparing.ask(sequence.grammar, {sequence.name: sequence.outputs})
            lost.asked.add_done_callback(lambda _: self._end(lost))

    def _take(self) -> _Lost | None:
        return self._waiting.popleft() if self._waiting else None

    def _end(self, lost: _Lost) -> None:
        if not lost.is_wanted:  # its process may have learnt of it after it was told to forget it
            self._preparing.forget((lost.sequence.name,))
        self._note_end()
        self._go_on_after(lost)


class Restoring:
    """On the engine's thread, but for `forget`. What takes long to read keeps only its like waiting, and what is never
    read is given up by `Preparing`, whether its request is planned meanwhile or not.
    """

    def __init__(self, preparing: Preparing) -> None:
        self._preparing = preparing
        self._has_news = threading.Event()  # a turn has ended since the last look
        self._quick, self._slow = (_Lane(preparing, self._has_news.set) for _ in range(2))
        self._lost: dict[str, _Lost] = {}  # by name

    def begin(self, sequences: Iterable[Followed]) -> dict[str, str]:
        """Of sequences that no process knows any more. Returns, by name, why some are given up."""
        given_up: dict[str, str] = {}
        for sequence in sequences:
            sequence.num_lost += 1
            if sequence.num_lost > _MAX_LOSSES:
                given_up[sequence.name] = "what reads grammars ended again and again"
                continue
            self._lost[sequence.name] = lost = _Lost(sequence)
            (self._slow if self._preparing.is_slow(sequence.grammar) else self._quick).add(lost)
        return given_up

    def look(self, names: Sequence[str]) -> tuple[set[str], dict[str, str]]:
        """Which of them cannot be asked about yet, and why some never can be again. The others can."""
        self._has_news.clear()
        unready: set[str] = set()
        failures: dict[str, str] = {}
        for name in names if self._lost else ():
            lost = self._lost.get(name)
            if lost is None:
                continue
            if lost.asked is None or not lost.asked.done():
                unready.add(name)
                continue
            self._lost.pop(name, None)
            lost.sequence.num_told = len(lost.sequence.outputs)
            if error := _error_of(lost.asked):
                failures[name] = error
        return unready, failures

    def wait(self, timeout_s: float) -> bool:
        """Until a turn has ended since the last `look`, so long at most; whether one has."""
        return self._has_news.wait(timeout_s)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            if (lost := self._lost.pop(name, None)) is not None:
                lost.is_wanted = False


def _error_of(asked: Future[None]) -> str | None:
    try:
        asked.result()
    except NoriaError as error:
        return str(error)
    return None
