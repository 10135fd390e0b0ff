"""Answers `PoolQuestion`: from a stated pool to the length it holds, or from memory to both."""

from __future__ import annotations

from noria.config.budget import choose_budget
from noria.config.errors import ConfigError
from noria.config.pool import PoolQuestion, Sizing
from noria.config.shortage import Shortage
from noria.config.sizes import flag_size, format_size

# Where nobody states a length, memory is taken beyond the default share until requests of this many tokens fit.
COMFORTABLE_LEN = 2048
# Below this many tokens a model is of no use: its start is refused, unless the pool itself was stated.
SHORTEST_FITTED_LEN = 128


def size_pool(question: PoolQuestion) -> Sizing:
    """Raises ConfigError with the numbers and the settings that would work."""
    memory = question.memory
    if memory.num_gpu_blocks_override is not None:
        return _for_stated_blocks(question, memory.num_gpu_blocks_override)
    if memory.kv_cache_memory is not None:
        return _for_stated_blocks(question, _blocks_of(question, memory.kv_cache_memory))
    return _for_memory(question)


def _for_memory(question: PoolQuestion) -> Sizing:
    goal, demand = question.goal, question.demand
    wanted = goal.num_tokens if goal.is_fixed else min(goal.num_tokens, COMFORTABLE_LEN)
    shortest = goal.num_tokens if goal.is_fixed else min(goal.num_tokens, SHORTEST_FITTED_LEN)
    share = question.memory.gpu_memory_utilization
    budget = choose_budget(share, demand.with_one_request(wanted), question.hardware)
    if demand.with_one_request(shortest) > budget.num_bytes:
        raise ConfigError(Shortage(question, budget, shortest, demand.num_blocks(shortest)).explain())
    length = goal.num_tokens
    if not goal.is_fixed:
        length = demand.longest_within(budget.num_bytes, goal.num_tokens)
    # More than all running requests can use would serve the prefix cache alone: that takes a stated pool.
    most = question.max_num_seqs * demand.num_blocks(length)
    return Sizing(length, min(demand.blocks_within(budget.num_bytes, length), most), budget)


def _for_stated_blocks(question: PoolQuestion, num_blocks: int) -> Sizing:
    goal, demand = question.goal, question.demand
    length = goal.num_tokens
    if not goal.is_fixed:
        length = min(length, num_blocks * demand.block_size)
    if demand.num_blocks(length) > num_blocks:
        raise ConfigError(_too_long(question, length, num_blocks))
    needed = demand.with_blocks(length, num_blocks)
    budget = choose_budget(question.memory.gpu_memory_utilization, needed, question.hardware)
    if needed > budget.num_bytes:
        raise ConfigError(Shortage(question, budget, length, num_blocks).explain())
    return Sizing(length, num_blocks, budget)


def _blocks_of(question: PoolQuestion, num_bytes: int) -> int:
    block_bytes = question.demand.block_bytes
    if num_bytes < block_bytes:
        raise ConfigError(
            f"--kv-cache-memory {num_bytes} holds no block: one block of {question.demand.block_size} tokens "
            f"takes {block_bytes} bytes. "
            f"Would work: --kv-cache-memory {flag_size(block_bytes)}"
        )
    return num_bytes // block_bytes


def _too_long(question: PoolQuestion, length: int, num_blocks: int) -> str:
    demand = question.demand
    needed = demand.num_blocks(length)
    room = num_blocks * demand.block_size
    if question.memory.num_gpu_blocks_override is not None:
        larger = f"--num-gpu-blocks-override {needed}"
    else:
        larger = f"--kv-cache-memory {flag_size(needed * demand.block_bytes)}"
    return (
        f"one request of {length} tokens (--max-model-len) takes {needed} blocks of the KV cache "
        f"({format_size(needed * demand.block_bytes)}), but it is stated to have {num_blocks} "
        f"({format_size(num_blocks * demand.block_bytes)}, {room} tokens). "
        f"Would work: --max-model-len {room}; or {larger}"
    )
