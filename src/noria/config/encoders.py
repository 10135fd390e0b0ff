"""What an encoder settles by its nature: its tokens see their whole text, so a text is computed in one step."""

from __future__ import annotations

from dataclasses import replace

from noria.config.asked import EngineOptions
from noria.config.model import ModelConfig
from noria.config.resolved import Choice
from noria.config.step_budget import MOST_TOKENS


def suited(asked: EngineOptions, model: ModelConfig, max_position: int) -> EngineOptions:
    """What is asked of a decoder, as it is; of an encoder, with what it leaves no choice about.

    max_position: of the model and its backend, in tokens. Where nobody states what a step computes, it holds the
    longest text.
    """
    if model.encoder is None:
        return asked
    stated, length = asked.scheduler.max_num_batched_tokens, asked.memory.max_model_len
    longest = min(length, max_position) if isinstance(length, int) else max_position
    if stated is None and longest > MOST_TOKENS:
        stated = longest
    scheduler = replace(asked.scheduler, enable_chunked_prefill=False, max_num_batched_tokens=stated)
    return replace(asked, scheduler=scheduler, memory=replace(asked.memory, enable_prefix_caching=False))


def encoder_choices(model: ModelConfig) -> tuple[Choice, ...]:
    """Rows for the table at start."""
    if model.encoder is None:
        return ()
    return (
        Choice("enable_chunked_prefill", False, "an encoder's tokens see the whole text, so none is cut"),
        Choice(
            "enable_prefix_caching", False, "of an encoder, equal beginnings of texts have different states"
        ),
    )
