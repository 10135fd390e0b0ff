"""How much a server lets wait, where nobody stated it."""

from __future__ import annotations

from dataclasses import replace

from noria.config.engine import QueueConfig, SchedulerConfig
from noria.config.resolved import Choice, Resolved
from noria.config.serving import QueueOptions

REQUESTS_CHOICE, TOKENS_CHOICE = "max_num_queued_reqs", "max_num_queued_tokens"

_BATCHES = 8
_STEPS = 600
_LONGEST = 4


def settle_queue(resolved: Resolved, asked: QueueOptions) -> Resolved:
    """The settings with the queue of a server bounded. A pure function."""
    scheduler = resolved.config.scheduler
    requests = _requests(asked, scheduler)
    tokens = _tokens(asked, scheduler)
    queue = QueueConfig(requests.value, tokens.value)
    return replace(
        resolved, config=replace(resolved.config, queue=queue), choices=(*resolved.choices, requests, tokens)
    )


def _requests(asked: QueueOptions, scheduler: SchedulerConfig) -> Choice:
    if asked.max_num_queued_reqs is not None:
        return Choice(REQUESTS_CHOICE, asked.max_num_queued_reqs, "asked for")
    reason = f"requests without a first token: {_BATCHES} times max_num_seqs; more are refused for now"
    return Choice(REQUESTS_CHOICE, _BATCHES * scheduler.max_num_seqs, reason)


def _tokens(asked: QueueOptions, scheduler: SchedulerConfig) -> Choice:
    if asked.max_num_queued_tokens is not None:
        return Choice(TOKENS_CHOICE, asked.max_num_queued_tokens, "asked for")
    # Of the length that steps have by themselves: how long newcomers wait is another matter than gaps between tokens.
    by_itself = replace(scheduler, latency=None).full_step_tokens
    steps, longest = _STEPS * by_itself, _LONGEST * scheduler.max_model_len
    if steps >= longest:
        return Choice(TOKENS_CHOICE, steps, f"of their prompts: what {_STEPS} full steps read")
    return Choice(TOKENS_CHOICE, longest, f"of their prompts: {_LONGEST} of max_model_len")
