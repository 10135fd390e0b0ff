"""Which requests can be served at all: checked before anything is queued."""

from __future__ import annotations

from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams


def max_known_tokens(num_prompt: int, params: SamplingParams, max_model_len: int) -> int:
    """Where prompt and output together end: max_tokens after the prompt, or the context's end.

    Raises RequestError for a prompt that leaves no room for the one token that was asked for.
    """
    if num_prompt == 0:
        raise RequestError("the prompt is empty; it needs at least one token", "prompt")
    wanted = 0 if params.max_tokens == 0 else 1
    if num_prompt + wanted > max_model_len:
        raise RequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, the prompt has "
            f"{num_prompt} tokens and at least {wanted} must be left for the output (context_length_exceeded)",
            "prompt",
        )
    if params.max_tokens is None:
        return max_model_len
    return min(num_prompt + params.max_tokens, max_model_len)
