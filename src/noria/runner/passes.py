"""A step in several passes of the model, where one would need too many logits at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noria.core.plan import Failure, Pooled, PromptLogprobs, Sampled, StepResult, Work
from noria.runner.duties import Duty
from noria.runner.inputs import Share

# Rows of logits for prompt log-probabilities that a pass makes: 50 MB for a vocabulary of 49,152.
MAX_PROMPT_ROWS = 256


def split_into_passes(shares: Sequence[Share], max_prompt_rows: int = MAX_PROMPT_ROWS) -> list[list[Share]]:
    """The shares of a step, cut so that no pass has more rows of prompt logits than allowed.

    Nearly always one pass. A request that reports its prompt's log-probabilities may go on in later passes,
    which is the same to it as being computed in chunks.
    """
    passes: list[list[Share]] = [[]]
    number, room = 0, max_prompt_rows
    for state, work in shares:
        if state.duty.num_prompt_rows(work) == 0:
            passes[0].append((state, work))
            continue
        for piece in _pieces(state.duty, work, room, max_prompt_rows):
            num_rows = state.duty.num_prompt_rows(piece)
            if num_rows > room:
                number, room = number + 1, max_prompt_rows
            if number == len(passes):
                passes.append([])
            passes[number].append((state, piece))
            room -= num_rows
    return passes


def _pieces(duty: Duty, work: Work, room: int, max_rows: int) -> list[Work]:
    """The work in pieces: the first of at most `room` prompt rows, the others of at most `max_rows`."""
    pieces: list[Work] = []
    rest, limit = work, room or max_rows
    while duty.num_prompt_rows(rest) > limit:
        pieces.append(replace(rest, num_new=limit, samples=False))
        rest = replace(
            rest, num_computed=rest.num_computed + limit, num_new=rest.num_new - limit, new_blocks=()
        )
        limit = max_rows
    return [*pieces, rest]


def join_results(step: int, results: Sequence[StepResult]) -> StepResult:
    """The results of a step's passes as one: each request's prompt log-probabilities joined, one failure each."""
    if len(results) == 1:
        return results[0]
    failures: dict[str, Failure] = {}
    logprobs: dict[str, PromptLogprobs] = {}
    sampled: list[Sampled] = []
    unready: list[str] = []
    pooled: list[Pooled] = []
    for result in results:
        for failure in result.failures:
            failures.setdefault(failure.request_id, failure)
        for entry in result.prompt_logprobs:
            known = logprobs.get(entry.request_id)
            joined = entry if known is None else replace(known, logprobs=known.logprobs + entry.logprobs)
            logprobs[entry.request_id] = joined
        sampled += result.sampled
        unready += result.unready
        pooled += result.pooled
    return StepResult(
        step,
        tuple(entry for entry in sampled if entry.request_id not in failures),
        tuple(entry for entry in logprobs.values() if entry.request_id not in failures),
        tuple(failures.values()),
        tuple(pooled),
        tuple(request_id for request_id in unready if request_id not in failures),
    )
