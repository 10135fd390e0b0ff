"""What clients have to know of an engine that they did not build, and how they come to know it.

It is settled before the weights are in memory, so that a client can get ready while they load. The model's files are
opened by the engine alone: its tokenizer is among the facts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from noria.config.asked import EngineOptions
from noria.config.resolved import Resolved
from noria.config.settle_abilities import settle_abilities
from noria.engine.messages import EngineFacts

if TYPE_CHECKING:
    from noria.engine.opening import OpenedModel


def engine_facts(opened: OpenedModel, resolved: Resolved, options: EngineOptions) -> EngineFacts:
    config, cache = resolved.config, resolved.config.cache
    return EngineFacts(
        model_name=opened.name,
        tokenizer=opened.tokenizer,
        generation_defaults=dict(opened.generation_defaults),
        max_model_len=config.scheduler.max_model_len,
        vocab_size=config.model.vocab_size,
        cache_labels={
            "block_size": str(cache.block_size),
            "num_gpu_blocks": str(cache.num_blocks),
            "cache_dtype": cache.dtype,
            "enable_prefix_caching": str(cache.enable_prefix_caching),
            "gpu_memory_utilization": _share(resolved, options),
            "kv_cache_size_tokens": str(resolved.memory.num_tokens),
            "kv_cache_max_concurrency": str(resolved.memory.num_longest_requests),
        },
        seed=config.seed,
        abilities=settle_abilities(config.model, options.pooling),
    )


def _share(resolved: Resolved, options: EngineOptions) -> str:
    """Of the memory there is: what was asked for, else what it came to."""
    asked = options.memory.gpu_memory_utilization
    memory = resolved.memory
    return f"{memory.budget_bytes / memory.total_bytes if asked is None else asked:.3g}"


def write_facts(facts: EngineFacts, directory: str, incarnation: int) -> None:
    """For the clients of this engine."""
    path = _path(directory, incarnation)
    with open(f"{path}.part", "wb") as file:
        file.write(msgspec.msgpack.encode(facts))
    os.replace(f"{path}.part", path)


def read_facts(directory: str, incarnation: int) -> EngineFacts:
    with open(_path(directory, incarnation), "rb") as file:
        return msgspec.msgpack.decode(file.read(), type=EngineFacts)


def _path(directory: str, incarnation: int) -> str:
    return os.path.join(directory, f"facts-{incarnation}")
