"""What an engine tells clients that did not build it."""

from __future__ import annotations

from noria.config.asked import EngineOptions
from noria.config.resolved import Resolved
from noria.engine.messages import EngineFacts


def engine_facts(resolved: Resolved, options: EngineOptions) -> EngineFacts:
    config, cache = resolved.config, resolved.config.cache
    return EngineFacts(
        max_model_len=config.scheduler.max_model_len,
        vocab_size=config.model.vocab_size,
        cache_labels={
            "block_size": str(cache.block_size),
            "num_gpu_blocks": str(cache.num_blocks),
            "cache_dtype": cache.dtype,
            "enable_prefix_caching": str(cache.enable_prefix_caching),
            "gpu_memory_utilization": str(options.memory.gpu_memory_utilization),
            "kv_cache_size_tokens": str(resolved.memory.num_tokens),
            "kv_cache_max_concurrency": str(resolved.memory.num_longest_requests),
        },
        seed=config.seed,
    )
