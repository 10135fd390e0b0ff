"""What the offline API returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from noria.core.plan import TokenLogprobs


@dataclass
class CompletionOutput:
    """One output of a prompt.

    token_ids: a stop token included; text: without it. logprobs: one entry a token, when asked for.
    finish_reason: stop | length | error | fault (its logits are no numbers) | lost (the engine died); None while it
    is being made. stop_reason: the stop string, or the one of stop_token_ids, that ended it. error: what went wrong,
    for error, fault and lost.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str | None = None


@dataclass
class RequestOutput:
    """A prompt and its outputs.

    prompt: the text, None for a prompt of token ids. prompt_logprobs: one entry a prompt token, the first
    None, when asked for. num_cached_tokens: prompt tokens that came from the prefix cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
