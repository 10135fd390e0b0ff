"""What two engines must have in common for one to use the KV of the other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from noria import __version__
from noria.config.engine import EngineConfig
from noria.config.resolved import Choice

# Choices that decide how weights are computed with, by their names in the start-up table.
_COMPUTING = ("backend", "isa")


def kv_identity(weights: str, config: EngineConfig, choices: Sequence[Choice]) -> str:
    """A digest of everything that shapes KV besides tokens. Threads, batches and the number of blocks change no bit.

    weights: tells them from any others. choices: how it is computed.
    """
    shaping = (
        __version__,
        weights,
        config.model,
        config.scheduler.max_model_len,  # some kinds of rope scale with it
        config.dtype,
        config.quantization,
        config.cache.dtype,
        config.device,
        [(choice.name, str(choice.value)) for choice in choices if choice.name in _COMPUTING],
    )
    return hashlib.sha256(repr(shaping).encode()).hexdigest()
