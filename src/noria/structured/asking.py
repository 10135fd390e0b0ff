"""What sequences may choose next, asked of the grammar process: ahead of time, where it is known what will be asked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured import wire
from noria.structured.helper import GrammarProcess
from noria.structured.mask_memory import MaskMemory
from noria.structured.preparing import Preparing

log = logging.getLogger(__name__)

_FILL_LIMIT_S = 3.0  # for an answer of the process, which takes milliseconds
_WORD_BYTES = 4


class Followed:
    """A sequence that follows a grammar. outputs: its tokens; the process knows the first num_told.

    num_lost: how often the process that knew it has ended since it was last answered for.
    """

    __slots__ = ("grammar", "num_lost", "num_told", "outputs", "params")

    def __init__(self, grammar: Grammar, params: SamplingParams) -> None:
        self.grammar = grammar
        self.params = params
        self.outputs: list[int] = []
        self.num_told = 0
        self.num_lost = 0


@dataclass(slots=True)
class Answer:
    """rows: request id -> its row of the shared memory. errors: why it has none, and never will."""

    rows: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> set[str]:
        return self.rows.keys() | self.errors.keys()


@dataclass(frozen=True, slots=True)
class _Question:
    process: GrammarProcess
    first_row: int
    sequences: Mapping[str, Followed]
    news: Mapping[str, tuple[int, ...]]


class Asking:
    """On the engine's thread.

    What a step has sampled is told at once, so that the next step's masks are made while the engine is between steps,
    when processors are free, and not while the model computes. No more than that question is under way at a time.
    """

    def __init__(self, preparing: Preparing, num_words: int) -> None:
        self._preparing = preparing
        self._num_words = num_words
        self._memory: MaskMemory | None = None
        self._process: GrammarProcess | None = None  # whose memory it is
        self._ahead: _Question | None = None

    def ask_ahead(self, sequences: Mapping[str, Followed]) -> None:
        """Of which the next step will probably want to know."""
        if self._ahead is not None:  # no step came of it; what it told is told
            self._answer_to(self._ahead)
        self._ahead = self._ask(sequences, 0)

    def answer(self, sequences: Mapping[str, Followed]) -> Answer | None:
        """Of all of them that the process knows. None: it knows of nobody yet, is gone, or was ended because it did
        not answer.
        """
        ahead, self._ahead = self._ahead, None
        found = Answer() if ahead is None else self._answer_to(ahead)
        if found is None:
            return None
        left = {name: one for name, one in sequences.items() if name not in found.known}
        if not left:
            return found
        asked = self._ask(left, 0 if ahead is None else len(ahead.sequences))
        others = None if asked is None else self._answer_to(asked)
        if others is None:
            return None
        return Answer(found.rows | others.rows, found.errors | others.errors)

    def bits(self, num_rows: int) -> np.ndarray:
        """uint32 [at least num_rows, words]: what the process has filled, to be changed at will until the next step."""
        assert self._memory is not None, "nothing was ever asked"
        mapped = self._memory.rows(num_rows)
        return np.frombuffer(mapped, dtype=np.uint32).reshape(-1, self._num_words)

    def _ask(self, sequences: Mapping[str, Followed], first_row: int) -> _Question | None:
        process = self._preparing.process
        if process is None or not process.has_answered:  # one that starts would be waited for
            return None
        if process is not self._process:
            self._memory = MaskMemory(process.memory, self._num_words * _WORD_BYTES)
            self._process = process
        assert self._memory is not None
        news = {name: tuple(one.outputs[one.num_told :]) for name, one in sequences.items()}
        try:
            self._memory.grow(first_row + len(sequences))
            process.steps.send(wire.Fill(first_row, news))
        except OSError:
            self._preparing.end(process)  # before anything is asked again: its other channel may not know yet
            return None
        return _Question(process, first_row, sequences, news)

    def _answer_to(self, question: _Question) -> Answer | None:
        process = question.process
        try:
            if not process.steps.has_news(_FILL_LIMIT_S):
                log.error("the grammar process does not answer and is ended")
                self._preparing.end(process)
                return None
            filled: wire.Filled = process.steps.receive()
        except (EOFError, OSError):
            self._preparing.end(process)
            return None
        for name, sequence in question.sequences.items():
            sequence.num_told += len(question.news[name])
        unknown = set(filled.unknown)
        return Answer(
            {
                name: question.first_row + place
                for place, name in enumerate(question.sequences)
                if name not in unknown and name not in filled.errors
            },
            filled.errors,
        )
