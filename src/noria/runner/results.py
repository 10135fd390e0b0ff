"""A step's logits as its result: tokens sampled, logprobs, and the requests that failed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.core.plan import Failure, PromptLogprobs, Sampled, StepResult, Work
from noria.runner.inputs import Share
from noria.runner.state import RequestState
from noria.sampling.logprobs import token_logprobs
from noria.sampling.nonfinite import SamplingFault


def read_logits(step: int, shares: Sequence[Share], logits: np.ndarray) -> StepResult:
    """The result of a step from logits [R, vocab] float32 in the rows that `build_batch` asked for.

    Each sampled token joins its request's state. A request that cannot be sampled from is a Failure and its
    state keeps its tokens; the others are as if it had not been there.
    """
    sampled: list[Sampled] = []
    prompt_logprobs: list[PromptLogprobs] = []
    failures: list[Failure] = []
    row = 0
    for state, work in shares:
        num_prompt_rows = state.num_prompt_rows(work)
        rows = logits[row : row + num_prompt_rows + work.samples]
        row += len(rows)
        try:
            if num_prompt_rows:
                prompt_logprobs.append(_prompt_logprobs(state, work, rows[:num_prompt_rows]))
            if work.samples:
                sampled.append(_sample(state, rows[-1]))
        except SamplingFault as fault:
            failures.append(Failure(state.request_id, str(fault)))
    assert row == len(logits), f"{row} rows of logits were asked for, the model returned {len(logits)}"
    return StepResult(step, tuple(sampled), tuple(prompt_logprobs), tuple(failures))


def _prompt_logprobs(state: RequestState, work: Work, rows: np.ndarray) -> PromptLogprobs:
    start = work.num_computed + 1
    targets = state.tokens.view()[start : start + len(rows)].tolist()
    num_top = state.params.prompt_logprobs or 0
    return PromptLogprobs(
        state.request_id,
        start,
        tuple(token_logprobs(row, target, num_top) for row, target in zip(rows, targets, strict=True)),
    )


def _sample(state: RequestState, row: np.ndarray) -> Sampled:
    token_id = state.sampler.sample(row, state.tokens.view())
    num_top = state.params.logprobs
    logprobs = () if num_top is None else (token_logprobs(row, token_id, num_top),)
    state.append(token_id)
    return Sampled(state.request_id, (token_id,), logprobs)
