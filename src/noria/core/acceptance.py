"""Which requests can be served at all: checked before anything is queued."""

from __future__ import annotations

from noria.config.errors import RequestError
from noria.config.model import ModelConfig
from noria.config.pooling import Head, PoolingParams
from noria.core.request import Params


def max_known_tokens(num_prompt: int, params: Params, max_model_len: int) -> int:
    """Where prompt and output together end: max_tokens after the prompt, or the context's end.

    Raises RequestError for a prompt that leaves no room for the one token that was asked for.
    """
    if num_prompt == 0:
        raise RequestError("the prompt is empty; it needs at least one token", "prompt")
    wanted = 0 if params.max_tokens == 0 else 1
    if num_prompt + wanted > max_model_len:
        rest = " and at least 1 must be left for the output" if wanted else ""
        raise RequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, the prompt has "
            f"{num_prompt} tokens{rest} (context_length_exceeded)",
            "prompt",
        )
    if params.max_tokens is None:
        return max_model_len
    return min(num_prompt + params.max_tokens, max_model_len)


def check_ability(params: Params, model: ModelConfig) -> None:
    """Raises RequestError for what the model cannot do."""
    if not isinstance(params, PoolingParams):
        if not model.has_logits:
            raise RequestError("this model has no output over its vocabulary: it generates no text", "model")
        return
    if params.head is Head.CLASSES and model.classifier is None:
        raise RequestError("this model has no classifier: it gives no classes", "task")
    if params.head is Head.TOKENS:
        _check_tokens(params, model)
    if params.dimensions is not None and not 1 <= params.dimensions <= model.hidden_size:
        raise RequestError(
            f"dimensions must be at least 1 and at most {model.hidden_size}, got {params.dimensions}",
            "dimensions",
        )


def _check_tokens(params: PoolingParams, model: ModelConfig) -> None:
    if not model.has_logits:
        raise RequestError("this model has no output over its vocabulary: it gives no token logits", "task")
    if not params.token_ids or not all(0 <= i < model.vocab_size for i in params.token_ids):
        raise RequestError(
            f"token_ids must be at least 0 and below {model.vocab_size}, got {list(params.token_ids)}",
            "token_ids",
        )
