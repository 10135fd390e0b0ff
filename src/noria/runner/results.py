"""A step's logits as its result: tokens sampled, logprobs, and the requests that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from noria.core.plan import Failure, PromptLogprobs, Sampled, StepResult, TokenLogprobs
from noria.kernels.ops import Sampler
from noria.runner.inputs import Share
from noria.runner.state import RequestState
from noria.sampling.logprobs import Asked
from noria.sampling.nonfinite import SamplingFault


def read_logits(step: int, shares: Sequence[Share], logits: np.ndarray, sampler: Sampler) -> StepResult:
    """The result of a step from logits [R, vocab] float32 in the rows that `build_batch` asked for.

    Each sampled token joins its request's state. A request that cannot be sampled from is a Failure; the others
    are as if it had not been there.
    """
    reader = _Reader(logits, sampler)
    sampling: list[tuple[int, RequestState]] = []
    row = 0
    for state, work in shares:
        if state.params.prompt_logprobs is not None:
            num_prompt_rows = state.num_prompt_rows(work)
            reader.score_prompt(state, work.num_computed + 1, row, num_prompt_rows)
            row += num_prompt_rows
        if work.samples:
            if state.request_id not in reader.failures:
                sampling.append((row, state))
            row += 1
    assert row == len(logits), f"{row} rows of logits were asked for, the model returned {len(logits)}"
    sampled = reader.sample(sampling) if sampling else []
    failures = tuple(Failure(*entry) for entry in reader.failures.items())
    return StepResult(step, tuple(sampled), tuple(reader.prompt_logprobs), failures)


class _Reader:
    """failures: by request id, why it failed."""

    def __init__(self, logits: np.ndarray, sampler: Sampler) -> None:
        self._logits = logits
        self._sampler = sampler
        self.prompt_logprobs: list[PromptLogprobs] = []
        self.failures: dict[str, str] = {}

    def score_prompt(self, state: RequestState, start: int, row: int, num_rows: int) -> None:
        """Logprobs of prompt tokens [start, start + num_rows), from the rows that follow on `row`."""
        if num_rows == 0:
            return
        targets = state.tokens.view()[start : start + num_rows].tolist()
        num_top = state.params.prompt_logprobs or 0
        asked = [Asked(row + place, target, num_top) for place, target in enumerate(targets)]
        told: list[TokenLogprobs] = []
        for entry in self._sampler.logprobs(self._logits, asked):
            if isinstance(entry, SamplingFault):
                self.failures[state.request_id] = str(entry)
                return
            told.append(entry)
        self.prompt_logprobs.append(PromptLogprobs(state.request_id, start, tuple(told)))

    def sample(self, sampling: Sequence[tuple[int, RequestState]]) -> list[Sampled]:
        rows = [row for row, _ in sampling]
        choices = self._sampler.sample(self._logits, rows, [state.sampled for _, state in sampling])
        logprobs = self._logprobs(sampling, choices)
        sampled: list[Sampled] = []
        for (row, state), choice in zip(sampling, choices, strict=True):
            told = logprobs.get(row)
            if isinstance(choice, SamplingFault):
                self.failures[state.request_id] = str(choice)
                continue
            if isinstance(told, SamplingFault):
                self.failures[state.request_id] = str(told)
                continue
            state.tokens.append(choice)
            sampled.append(Sampled(state.request_id, (choice,), () if told is None else (told,)))
        return sampled

    def _logprobs(
        self, sampling: Sequence[tuple[int, RequestState]], choices: Sequence[int | SamplingFault]
    ) -> dict[int, TokenLogprobs | SamplingFault]:
        """By row, those that were asked for."""
        asked: list[Asked] = []
        counts: list[tuple[int, int]] = []  # (row, how many of `asked` are about it)
        for (row, state), choice in zip(sampling, choices, strict=True):
            if state.params.logprobs is None or isinstance(choice, SamplingFault):
                continue
            named = state.params.logprob_token_ids
            asked.append(Asked(row, choice, 0 if named else state.params.logprobs))
            asked += [Asked(row, token_id, 0) for token_id in named]
            counts.append((row, 1 + len(named)))
        if not asked:
            return {}
        told = iter(self._sampler.logprobs(self._logits, asked))
        return {row: _together(list(islice(told, count))) for row, count in counts}


def _together(told: Sequence[TokenLogprobs | SamplingFault]) -> TokenLogprobs | SamplingFault:
    """What was told of a chosen token, with what was told of others of its row as its alternatives."""
    chosen, *others = told
    if isinstance(chosen, SamplingFault) or not others:
        return chosen
    # A row that cannot be normalised is a fault for each of its tokens.
    found = [(entry.token_id, entry.logprob) for entry in others if isinstance(entry, TokenLogprobs)]
    return replace(chosen, top=tuple(sorted(found, key=lambda pair: (-pair[1], pair[0]))))
