"""Checks of a request that need to know the model; the clients of the engine call them before it does."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams


def check_against_vocabulary(params: SamplingParams, vocab_size: int, max_logprobs: int) -> None:
    """Refuse token ids that the model does not have and more alternatives than may be reported.

    max_logprobs: the server's limit on logprobs and prompt_logprobs; -1 allows the whole vocabulary.
    Raises RequestError naming the parameter and its range.
    """
    check_token_ids(tuple(params.logit_bias), vocab_size, "logit_bias")
    check_token_ids(params.stop_token_ids, vocab_size, "stop_token_ids")
    check_token_ids(params.allowed_token_ids or (), vocab_size, "allowed_token_ids")
    check_token_ids(
        [token_id for word in params.bad_word_ids for token_id in word], vocab_size, "bad_word_ids"
    )
    for name in ("logprob_token_ids", "reasoning_begin_ids", "reasoning_end_ids"):
        check_token_ids(getattr(params, name), vocab_size, name)
    limit = vocab_size if max_logprobs == -1 else min(max_logprobs, vocab_size)
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None and value > limit:
            raise RequestError(f"{name} must be at least 0 and at most {limit}, got {value}", name)

    if len(params.logprob_token_ids) > limit:
        raise RequestError(
            f"logprob_token_ids must hold at most {limit} token ids, got {len(params.logprob_token_ids)}",
            "logprob_token_ids",
        )


def check_token_ids(token_ids: Sequence[int], vocab_size: int, name: str) -> None:
    """Refuse ids that the model does not have. name: the field they came in. Raises RequestError."""
    if not token_ids:
        return
    for token_id in (min(token_ids), max(token_ids)):
        if not 0 <= token_id < vocab_size:
            raise RequestError(f"{name} must hold token ids from 0 to {vocab_size - 1}, got {token_id}", name)
