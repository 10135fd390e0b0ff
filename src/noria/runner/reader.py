"""A step's outputs, read request by request, as its result."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice

import numpy as np

from noria.core.plan import Failure, Pooled, PromptLogprobs, Sampled, StepResult, TokenLogprobs
from noria.kernels.batch import Outputs
from noria.kernels.ops import SampledRequest, Sampler
from noria.runner.adjusting import Adjuster
from noria.sampling.logprobs import Asked
from noria.sampling.nonfinite import LogitsFault, SamplingFault
from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import OPEN, Allowed, Masks

_Sampling = tuple[int, str, SamplingParams, SampledRequest]  # the row, and whose it is


class Reader:
    """Gives out rows in the order in which they were asked for, and gathers what is made of them.

    masks: which tokens the requests may choose; waited for where one is sampled that has to be told.
    failures: by request id, why it failed. unready: ids of requests that sit the step out. Tokens are sampled for all
    requests at once, by `result`.
    """

    def __init__(
        self, outputs: Outputs, sampler: Sampler, masks: Future[Masks | None], adjuster: Adjuster
    ) -> None:
        self._outputs = outputs
        self._sampler = sampler
        self._masks = masks
        self._adjuster = adjuster
        self._next_logits = 0
        self._next_hidden = 0
        self._sampling: list[_Sampling] = []
        self.prompt_logprobs: list[PromptLogprobs] = []
        self.pooled: list[Pooled] = []
        self.failures: dict[str, SamplingFault] = {}
        self.unready: tuple[str, ...] = ()

    def take_logits(self, num_rows: int) -> int:
        """The first of the next rows of logits."""
        first = self._next_logits
        self._next_logits += num_rows
        return first

    def take_hidden(self, num_rows: int) -> np.ndarray:
        """[num_rows, H], the next ones."""
        first = self._next_hidden
        self._next_hidden += num_rows
        return self._outputs.hidden[first : self._next_hidden]

    def logits_of(self, token_ids: Sequence[int]) -> np.ndarray:
        """Of these tokens in the next row, float64."""
        row: np.ndarray = self._outputs.logits[self.take_logits(1)]
        return row[list(token_ids)].astype(np.float64)

    def logprobs(self, request_id: str, asked: Sequence[Asked]) -> tuple[TokenLogprobs, ...]:
        """None, and a failure, where a row has no log-probabilities."""
        told: list[TokenLogprobs] = []
        for entry in self._sampler.logprobs(self._outputs.logits, asked):
            if isinstance(entry, SamplingFault):
                self.failures[request_id] = entry
                return ()
            told.append(entry)
        return tuple(told)

    def sample(self, request_id: str, params: SamplingParams, sampled: SampledRequest) -> None:
        """From the next row, unless the request has failed."""
        row = self.take_logits(1)
        if request_id not in self.failures:
            self._sampling.append((row, request_id, params, sampled))

    def result(self, step: int) -> StepResult:
        """Once every request has read its rows."""
        num_rows = len(self._outputs.logits), len(self._outputs.hidden)
        read = self._next_logits, self._next_hidden
        assert read == num_rows, f"{num_rows} rows of logits and states were given, {read} were read"
        sampled = self._sample_all() if self._sampling else ()
        failures = tuple(
            Failure(name, str(fault), isinstance(fault, LogitsFault)) for name, fault in self.failures.items()
        )
        logprobs, pooled = tuple(self.prompt_logprobs), tuple(self.pooled)
        return StepResult(step, sampled, logprobs, failures, pooled, self.unready)

    def _sample_all(self) -> tuple[Sampled, ...]:
        is_told = any(params.is_constrained for _, _, params, _ in self._sampling)
        masks = (self._masks.result() if is_told else None) or OPEN
        self._fail(masks.failures)
        self.unready = tuple(name for _, name, *_ in self._sampling if name in masks.unready)
        self._leave_out(masks.unready)
        self._fail(self._unknown_in(masks))
        ruled = {name: row for row, name, params, _ in self._sampling if params.rule is not None}
        logits, failures = self._adjuster.adjusted(ruled, self._outputs.logits)
        self._fail(failures)
        if not self._sampling:
            return ()
        rows = [row for row, *_ in self._sampling]
        allowed = Allowed.of(masks, [entry[1] for entry in self._sampling])
        requests = [entry[3] for entry in self._sampling]
        choices = self._sampler.sample(logits, rows, requests, allowed)
        logprobs = self._chosen_logprobs(choices)
        sampled: list[Sampled] = []
        for (row, request_id, _, _), choice in zip(self._sampling, choices, strict=True):
            told = logprobs.get(row)
            if isinstance(choice, SamplingFault):
                self.failures[request_id] = choice
            elif isinstance(told, SamplingFault):
                self.failures[request_id] = told
            else:
                told_of = () if told is None else (told,)
                sampled.append(Sampled(request_id, (choice,), told_of, masks.is_ended_by(request_id, choice)))
        return tuple(sampled)

    def _unknown_in(self, masks: Masks) -> dict[str, str]:
        """Of those left: nobody says what a grammar allows them, and without a word they would choose freely."""
        return {
            name: "its grammar has been lost"
            for _, name, params, _ in self._sampling
            if params.grammar is not None and name not in masks.rows
        }

    def _fail(self, failures: Mapping[str, str]) -> None:
        """Sample nothing for these, now or ever."""
        self.failures |= {name: SamplingFault(why) for name, why in failures.items()}
        self._leave_out(failures)

    def _leave_out(self, request_ids: Container[str]) -> None:
        self._sampling = [entry for entry in self._sampling if entry[1] not in request_ids]

    def _chosen_logprobs(
        self, choices: Sequence[int | SamplingFault]
    ) -> dict[int, TokenLogprobs | SamplingFault]:
        """By row, those that were asked for."""
        asked: list[Asked] = []
        counts: list[tuple[int, int]] = []  # (row, how many of `asked` are about it)
        for (row, _, params, _), choice in zip(self._sampling, choices, strict=True):
            if params.logprobs is None or isinstance(choice, SamplingFault):
                continue
            named = params.logprob_token_ids
            asked.append(Asked(row, choice, 0 if named else params.logprobs))
            asked += [Asked(row, token_id, 0) for token_id in named]
            counts.append((row, 1 + len(named)))
        if not asked:
            return {}
        told = iter(self._sampler.logprobs(self._outputs.logits, asked))
        return {row: _together(list(islice(told, count))) for row, count in counts}


def _together(told: Sequence[TokenLogprobs | SamplingFault]) -> TokenLogprobs | SamplingFault:
    """What was told of a chosen token, with what was told of others of its row as its alternatives."""
    chosen, *others = told
    if isinstance(chosen, SamplingFault) or not others:
        return chosen
    # A row that cannot be normalised is a fault for each of its tokens.
    found = [(entry.token_id, entry.logprob) for entry in others if isinstance(entry, TokenLogprobs)]
    return replace(chosen, top=tuple(sorted(found, key=lambda pair: (-pair[1], pair[0]))))
