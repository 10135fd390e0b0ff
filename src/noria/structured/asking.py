"""What sequences may choose next, asked of the grammar process: ahead of time, where it is known what will be asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured import wire
from noria.structured.helper import GrammarProcess
from noria.structured.mask_memory import MaskMemory
from noria.structured.preparing import Preparing

log = logging.getLogger(__name__)

_PATIENCE_S = 0.1  # that a step waits for an answer, which takes milliseconds; who is late sits the step out
_FILL_LIMIT_S = 3.0  # for an answer, after which the process is given up
_WORD_BYTES = 4


class Followed:
    """A sequence that follows a grammar. name: no other ever has it. outputs: its tokens; the process knows the first
    num_told.

    num_lost: how often the process that knew it has ended since it was last answered for.
    """

    __slots__ = ("grammar", "name", "num_lost", "num_told", "outputs", "params")

    def __init__(self, name: str, grammar: Grammar, params: SamplingParams) -> None:
        self.name = name
        self.grammar = grammar
        self.params = params
        self.outputs: list[int] = []
        self.num_told = 0
        self.num_lost = 0


@dataclass(slots=True)
class Answer:
    """By name. rows: of the shared memory. errors: why it has none, and never will. late: which have none yet."""

    rows: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)

    @property
    def known(self) -> set[str]:
        return self.rows.keys() | self.errors.keys() | self.late

    def __or__(self, other: Answer) -> Answer:
        return Answer(self.rows | other.rows, self.errors | other.errors, self.late | other.late)


@dataclass(slots=True)
class _Question:
    """asked_s: when. is_late: a step has waited for the answer, and no other will."""

    process: GrammarProcess
    first_row: int
    news: Mapping[str, tuple[int, ...]]
    sequences: Collection[Followed]
    asked_s: float
    is_late: bool = False


class Asking:
    """On the engine's thread.

    What a step has sampled is told at once, so that the next step's masks are made while the engine is between steps,
    when processors are free, and not while the model computes. One question is under way at a time, and none keeps a
    step waiting for long: who is asked about in one that is late sits out the steps until it is answered.
    """

    def __init__(self, preparing: Preparing, num_words: int) -> None:
        self._preparing = preparing
        self._num_words = num_words
        self._memory: MaskMemory | None = None
        self._process: GrammarProcess | None = None  # whose memory it is
        self._under_way: _Question | None = None

    def ask_ahead(self, sequences: Collection[Followed]) -> None:
        """Of which the next step will probably want to know."""
        if self._under_way is not None:  # no step came of it, or it is late; what it told is told
            self._take(time.monotonic())
        if self._under_way is None:
            self._ask(sequences, range(0))

    def answer(self, sequences: Iterable[Followed]) -> Answer | None:
        """Of all of them that the process knows. None: it knows of nobody yet, is gone, or was ended because it did
        not answer.
        """
        end_s = time.monotonic() + _PATIENCE_S
        found, used = Answer(), range(0)
        if (ahead := self._under_way) is not None:
            used = range(ahead.first_row, ahead.first_row + len(ahead.news))
            if (told := self._take(end_s)) is None:
                return None
            found = told
        left = [one for one in sequences if one.name not in found.known]
        if not left:
            return found
        if self._under_way is not None:  # it is busy, and is asked about these when it has answered
            return found | Answer(late={one.name for one in left})
        self._ask(left, used)
        others = self._take(end_s)
        return None if others is None else found | others

    def wait(self, timeout_s: float) -> bool:
        """Until there is an answer to take, so long at most. False: none is under way."""
        if self._under_way is None:
            return False
        self._under_way.process.steps.has_news(timeout_s)
        return True

    def bits(self, num_rows: int) -> np.ndarray:
        """uint32 [at least num_rows, words]: what the process has filled, to be changed at will until the next step."""
        assert self._memory is not None, "nothing was ever asked"
        mapped = self._memory.rows(num_rows)
        return np.frombuffer(mapped, dtype=np.uint32).reshape(-1, self._num_words)

    def _ask(self, sequences: Collection[Followed], used: range) -> None:
        """There is a question under way then, if there is a process to ask. used: rows that this step has already."""
        process = self._preparing.process
        if process is None or not process.has_answered:  # one that starts would be waited for
            return
        if process is not self._process:
            if used:  # those rows were another's
                return
            self._memory = MaskMemory(process.memory, self._num_words * _WORD_BYTES)
            self._process = process
        assert self._memory is not None
        # Before them where there is room, or two groups that are late by turns would have ever higher rows.
        first_row = 0 if len(sequences) <= used.start else used.stop
        news = {one.name: tuple(one.outputs[one.num_told :]) for one in sequences}
        try:
            self._memory.grow(first_row + len(news))
            process.steps.send(wire.Fill(first_row, news))
        except OSError:
            self._preparing.end(process)  # before anything is asked again: its other channel may not know yet
            return
        self._under_way = _Question(process, first_row, news, sequences, time.monotonic())

    def _take(self, end_s: float) -> Answer | None:
        """To the question under way, which is answered or given up then, but where its sequences are late.

        None: there is none, or its process is gone, or ended now.
        """
        question = self._under_way
        if question is None:
            return None
        process = question.process
        filled: wire.Filled | None = None
        try:
            if process.steps.has_news(0.0 if question.is_late else max(0.0, end_s - time.monotonic())):
                filled = process.steps.receive()
            elif time.monotonic() - question.asked_s <= _FILL_LIMIT_S:
                question.is_late = True
                return Answer(late=set(question.news))
            else:
                log.error("the grammar process does not answer and is ended")
        except (EOFError, OSError):
            pass
        self._under_way = None
        if filled is None:
            self._preparing.end(process)
            return None
        for sequence in question.sequences:
            sequence.num_told += len(question.news[sequence.name])
        nowhere = {*filled.unknown, *filled.errors, *filled.late}
        rows = {
            name: row for row, name in enumerate(question.news, question.first_row) if name not in nowhere
        }
        return Answer(rows, filled.errors, set(filled.late))
