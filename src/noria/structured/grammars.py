"""Outputs that follow grammars: the engine's side, which asks the grammar process step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from noria.config.errors import RequestError
from noria.core.plan import StepPlan, StepResult
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import WORD_BITS, Masks, is_allowed, num_words
from noria.structured import wire
from noria.structured.api import grammar_of
from noria.structured.asking import Answer, Asking, Followed
from noria.structured.futures import all_of
from noria.structured.preparing import Preparing
from noria.structured.restoring import Restoring

if TYPE_CHECKING:
    from noria.engine.messages import EngineRequest

_PAUSE_S = 0.05  # at most, of a step that would sample nothing: who comes meanwhile waits as long


class GrammarConstraints:
    """Satisfies noria.structured.api.Constraints for requests with a grammar.

    A process that ends or does not answer is replaced, and told again of the sequences that are asked about. They sit
    out the steps until then, and those of an answer that is late until it comes; no step waits for them.

    setup: makes what the process has to know first; called on another thread, when a grammar is first met.
    eos_token_ids: those that end an output.
    """

    def __init__(
        self, setup: Callable[[], wire.Setup], vocab_size: int, eos_token_ids: Sequence[int]
    ) -> None:
        self._preparing = Preparing(setup)
        self._num_words = num_words(vocab_size)
        self._asking = Asking(self._preparing, self._num_words)
        self._restoring = Restoring(self._preparing)
        self._no_bits = np.empty((0, self._num_words), dtype=np.uint32)
        self._eos_token_ids = tuple(i for i in eos_token_ids if 0 <= i < vocab_size)
        self._ending_ids = frozenset(self._eos_token_ids)
        self._numbers = itertools.count()
        self._sequences: dict[
            str, Followed
        ] = {}  # by request id; added to on any thread, changed on the engine's

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        if not self._eos_token_ids:
            return _refused(requests)
        groups: dict[Grammar, list[str]] = {}  # names
        for request in requests:
            grammar, params = grammar_of(request), request.params
            if grammar is not None and isinstance(params, SamplingParams):
                followed = Followed(str(next(self._numbers)), grammar, params)
                self._sequences[request.request_id] = followed
                groups.setdefault(grammar, []).append(followed.name)
        asked = [
            self._preparing.ask(grammar, dict.fromkeys(names, ()), requests[0].tenant.name)
            for grammar, names in groups.items()
        ]
        return all_of(asked)

    def masks_for(self, plan: StepPlan) -> Masks | None:
        sampling = [work.request_id for work in plan.work if work.samples]
        asked = {one: sequence for one in sampling if (sequence := self._sequences.get(one)) is not None}
        if not asked:
            return None
        found = self._find(asked.values())
        if len(found.late) == len(plan.work):
            if not self._asking.wait(_PAUSE_S):
                self._restoring.wait(_PAUSE_S)
            found = self._find(asked.values())
        return self._masks(asked, found)

    def accept(self, result: StepResult) -> None:
        going_on: list[Followed] = []
        for sampled in result.sampled:
            sequence = self._sequences.get(sampled.request_id)
            if sequence is not None:
                sequence.outputs += sampled.token_ids
                going_on.append(sequence)
        if going_on:
            self._asking.ask_ahead(going_on)

    def forget(self, request_ids: Sequence[str]) -> None:
        known = [one.name for name in request_ids if (one := self._sequences.pop(name, None)) is not None]
        self._restoring.forget(known)
        self._preparing.forget(known)

    def shutdown(self) -> None:
        self._preparing.close()

    def _find(self, sequences: Collection[Followed]) -> Answer:
        """Of each: its row, why it never has one again, or that it is late, since no process knows it at the moment or
        the one that does has not answered yet.
        """
        unready, failures = self._restoring.look([one.name for one in sequences])
        left = [one for one in sequences if one.name not in unready and one.name not in failures]
        answer = self._asking.answer(left) or Answer()
        for one in left:
            if (error := answer.errors.get(one.name)) is not None:
                failures[one.name] = f"{one.grammar.field} cannot be followed any further: {error}"
        lost = [one for one in left if one.name not in answer.known]
        failures |= self._restoring.begin(lost)
        unready.update(one.name for one in lost if one.name not in failures)
        # What was asked ahead is late as well for those that are in no step any more.
        late = answer.late & {one.name for one in sequences}
        return Answer(answer.rows, failures, late | unready)

    def _masks(self, asked: Mapping[str, Followed], found: Answer) -> Masks:
        """asked: by request id."""
        rows: dict[str, int] = {}
        failures: dict[str, str] = {}
        unready: set[str] = set()
        for request_id, sequence in asked.items():
            if sequence.name in found.late:
                unready.add(request_id)
            elif (error := found.errors.get(sequence.name)) is not None:
                failures[request_id] = error
            else:
                rows[request_id] = found.rows[sequence.name]
                sequence.num_lost = 0
        bits = self._asking.bits(1 + max(rows.values())) if rows else self._no_bits
        for request_id, row in rows.items():
            _withhold(bits[row], self._withheld(asked[request_id]))
        return Masks(bits, rows, failures, dict.fromkeys(rows, self._ending_ids), frozenset(unready))

    def _withheld(self, sequence: Followed) -> Sequence[int]:
        """The tokens that must not end the output now, if anything else may follow."""
        params = sequence.params
        if len(sequence.outputs) < params.min_tokens:
            return (*self._eos_token_ids, *params.stop_token_ids)
        return self._eos_token_ids if params.ignore_eos else ()


def _withhold(row: np.ndarray, token_ids: Sequence[int]) -> None:
    """row: uint32 [words], changed in place. Most rows allow none of the tokens anyway."""
    if not any(is_allowed(row, one) for one in token_ids):
        return
    left = row.copy()
    for token_id in token_ids:
        left[token_id // WORD_BITS] &= ~np.uint32(1 << (token_id % WORD_BITS))
    if left.any():
        row[:] = left


def _refused(requests: Sequence[EngineRequest]) -> Future[None]:
    refusal: Future[None] = Future()
    field = next((grammar.field for one in requests if (grammar := grammar_of(one))), None)
    text = "the model names no end-of-sequence token, and an output that follows a grammar could not end"
    refusal.set_exception(RequestError(text, field))
    return refusal
