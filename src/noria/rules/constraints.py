"""Decoding rules at the seam of structured.api: which tokens they allow is found out while the model computes.

Rules that adjust logits are asked after it has: see `adjusted`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from noria.config.errors import EngineError, OverloadError, PluginError, Refusal, RequestError
from noria.rules.api import ModelFacts
from noria.rules.messages import (
    ADJUST,
    ALLOWED,
    Answer,
    Begin,
    Born,
    Failed,
    FromChild,
    Preload,
    Question,
    Ready,
    Refused,
    framed,
)
from noria.rules.process import Late, Lost, Nursery, RuleProcess, exchange
from noria.rules.quarantine import MAX_LATE, Quarantine
from noria.rules.table import SAMPLERS
from noria.sampling.params import SamplingParams
from noria.sampling.rule import FIELD, Rule
from noria.sampling.sampler import ending_ids
from noria.sampling.token_masks import WORD_BITS, Masks, num_words
from noria.structured.api import rule_of

if TYPE_CHECKING:
    from noria.core.plan import StepPlan, StepResult
    from noria.engine.messages import EngineRequest

_START_LIMIT_S = 30.0  # for a rule to be imported and made; nobody else waits
_MAX_PROCESSES = 1024  # of sequences in the engine, its queue included
_RETRY_AFTER_S = 1
_NUM_STARTERS = 32  # they wait, so a few slow ones keep nobody else from starting


@dataclass(eq=False)
class _Running:
    """A sequence's rule. key: its tenant, and the rule's entry point. unsent: ids that joined its output since its
    process was asked.

    withheld: the tokens that may not end it in its first num_withheld steps.
    """

    rule: Rule
    key: tuple[str, str]
    process: RuleProcess
    methods: tuple[str, ...]
    withheld: np.ndarray
    num_withheld: int
    unsent: list[int] = field(default_factory=list)

    def masked(self, bits: np.ndarray) -> np.ndarray:
        """bits: uint32, of what the rule allows; without what min_tokens withholds, unless nothing is left then."""
        if self.num_withheld <= 0:
            return bits
        kept = bits.copy()
        np.bitwise_and.at(kept, self.withheld // WORD_BITS, ~(np.uint32(1) << (self.withheld % WORD_BITS)))
        return kept if kept.any() else bits


class RuleConstraints:
    """A structured.api.Constraints, and the runner's Adjuster.

    limit_s: for all rules of a step together. One that takes longer has its process ended, and its request fails; one
    that does so again and again is refused for a while.
    """

    def __init__(self, facts: ModelFacts, limit_s: float) -> None:
        self._limit_s = limit_s
        self._vocab_size = facts.vocab_size
        self._eos_token_ids = facts.eos_token_ids
        self._nursery = Nursery(facts)
        self._starters = ThreadPoolExecutor(_NUM_STARTERS, "noria-rules")
        self._lock = threading.Lock()  # guards the three below: requests begin and may end on other threads
        self._running: dict[str, _Running] = {}
        self._num_starting = 0
        self._preloaded: set[str] = set()
        self._quarantine = Quarantine()
        self._were_late: dict[tuple[str, str], bool] = {}  # by key, of the rules that this step has asked

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        """The future raises OverloadError, too, where there would be too many processes."""
        count = sum(rule_of(request) is not None for request in requests)
        with self._lock:
            num_others = len(self._running) + self._num_starting
            if num_others + count > _MAX_PROCESSES:
                return _refused(num_others)
            self._num_starting += count
        begun = self._starters.submit(self._begin_all, requests)
        begun.add_done_callback(lambda _: self._started(count))
        return begun

    def masks_for(self, plan: StepPlan) -> Masks | None:
        asked = self._asked([work.request_id for work in plan.work if work.samples], ALLOWED)
        if not asked:
            return None
        answers, failures = self._ask(asked, ALLOWED, {})
        told = {request_id: content for request_id, content in answers.items() if content}
        bits = np.zeros((len(told), num_words(self._vocab_size)), np.uint32)
        for row, (request_id, content) in enumerate(told.items()):
            bits[row] = asked[request_id].masked(np.frombuffer(content, np.uint32))
        return Masks(bits, {request_id: row for row, request_id in enumerate(told)}, failures)

    def adjusted(self, rows: Mapping[str, int], logits: np.ndarray) -> tuple[np.ndarray, Mapping[str, str]]:
        """rows: by request id, of logits [R, vocab]. Returns the logits as they are to be sampled from, a copy if any
        rule is about them, and by id why a request fails. On the runner's thread, within a step.
        """
        asked = self._asked(list(rows), ADJUST)
        if not asked:
            return logits, {}
        answers, failures = self._ask(asked, ADJUST, {one: logits[rows[one]].tobytes() for one in asked})
        logits = logits.copy()
        for request_id, content in answers.items():
            if content:
                logits[rows[request_id]] = np.frombuffer(content, np.float32)
        return logits, failures

    def accept(self, result: StepResult) -> None:
        self._judge()
        for sampled in result.sampled:
            running = self._running.get(sampled.request_id)
            if running is not None:
                running.unsent += sampled.token_ids
                running.num_withheld -= len(sampled.token_ids)

    def forget(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            with self._lock:
                running = self._running.pop(request_id, None)
            if running is not None:
                self._nursery.end(running.process)

    def shutdown(self) -> None:
        self._nursery.shutdown()  # what starters wait for ends with it
        self._starters.shutdown(cancel_futures=True)
        self.forget(list(self._running))

    def _started(self, count: int) -> None:
        with self._lock:
            self._num_starting -= count

    def _begin_all(self, requests: Sequence[EngineRequest]) -> None:
        for request in requests:
            rule = rule_of(request)
            if rule is None:
                continue
            running = self._begin(rule, request)
            with self._lock:
                self._running[request.request_id] = running

    def _begin(self, rule: Rule, request: EngineRequest) -> _Running:
        """Raises RequestError, PluginError, and EngineError where no process can be had."""
        entry = SAMPLERS.find(rule.name)
        if entry is None:
            names = ", ".join(sorted(SAMPLERS.names())) or "none"
            raise RequestError(
                f"there is no decoding rule {rule.name!r:.100}; installed here: {names}", FIELD
            )
        key = (request.tenant.name, entry.target)
        if (rest_s := self._quarantine.rest_s(*key)) > 0:
            raise RequestError(
                f"the decoding rule {rule.name!r} took longer than {self._limit_s:g} s {MAX_LATE} times in a row, and "
                f"is not used for the next {math.ceil(rest_s)} s",
                FIELD,
            )
        try:
            process = self._nursery.bear()
        except OSError as error:
            raise EngineError(
                f"no process could be started for the decoding rule {rule.name!r}: {error}"
            ) from error
        begin = Begin(rule.name, entry.target, entry.distribution, rule.arguments, request.prompt_token_ids)
        try:
            methods = self._methods_of(process, begin)
        except BaseException:
            self._nursery.end(process)
            raise
        if entry.target not in self._preloaded:
            self._preloaded.add(entry.target)
            self._nursery.tell(Preload(entry.target))
        params = request.params
        assert isinstance(params, SamplingParams), f"{request.request_id} samples nothing, but has a rule"
        ending = np.array(ending_ids(params, self._eos_token_ids), dtype=np.uint32)
        return _Running(rule, key, process, methods, ending, params.min_tokens)

    def _methods_of(self, process: RuleProcess, begin: Begin) -> tuple[str, ...]:
        born = exchange({process: b""}, _START_LIMIT_S)[process]
        if not isinstance(born, Born):
            raise EngineError(f"no process could be started for the decoding rule {begin.name!r}: {born}")
        process.pid = born.pid
        made = exchange({process: framed(begin)}, _START_LIMIT_S)[process]
        if isinstance(made, Ready):
            return made.methods
        if isinstance(made, Refused) and made.is_package:
            raise PluginError(f"the decoding rule {begin.name!r} cannot be used: {made.message}")
        reason = made.message if isinstance(made, Refused) else made
        raise RequestError(f"the decoding rule {begin.name!r} refuses its arguments: {reason}", FIELD)

    def _asked(self, request_ids: Sequence[str], method: str) -> dict[str, _Running]:
        if not self._running:
            return {}
        found = ((one, self._running.get(one)) for one in request_ids)
        return {one: running for one, running in found if running is not None and method in running.methods}

    def _judge(self) -> None:
        """Once a step, whose questions are behind it: however many of them a rule was late to, it held up one step."""
        for key, was_late in self._were_late.items():
            (self._quarantine.was_late if was_late else self._quarantine.answered)(*key)
        self._were_late.clear()

    def _ask(
        self, asked: Mapping[str, _Running], method: str, logits: Mapping[str, bytes]
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """The content of each answer, and why there is none. Both by request id."""
        frames: dict[RuleProcess, bytes] = {}
        for request_id, running in asked.items():
            question = Question(method, tuple(running.unsent), logits.get(request_id, b""))
            running.unsent.clear()
            frames[running.process] = framed(question)
        told = exchange(frames, self._limit_s)
        for running in asked.values():
            is_late = isinstance(told[running.process], Late)
            self._were_late[running.key] = is_late or self._were_late.get(running.key, False)
        size = 4 * (num_words(self._vocab_size) if method == ALLOWED else self._vocab_size)
        answers: dict[str, bytes] = {}
        failures: dict[str, str] = {}
        for request_id, running in asked.items():
            answer = told[running.process]
            if isinstance(answer, Answer) and len(answer.content) in (0, size):
                answers[request_id] = answer.content
            else:
                failures[request_id] = f"the decoding rule {running.rule.name!r} failed: {_reason(answer)}"
        return answers, failures


def _refused(num_others: int) -> Future[None]:
    refusal: Future[None] = Future()
    text = (
        f"{num_others} sequences have decoding rules of their own, each in a process; {_MAX_PROCESSES} may."
    )
    refusal.set_exception(OverloadError(text, Refusal.QUEUED_REQUESTS, _RETRY_AFTER_S))
    return refusal


def _reason(answer: FromChild | Lost) -> str:
    if isinstance(answer, Failed):
        return answer.message
    return str(answer) if isinstance(answer, Lost) else "its process answered what it was not asked"
