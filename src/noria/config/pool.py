"""How long a request may be and how many blocks there are: one decision, for each bounds the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from noria.config.asked import EngineOptions, MemoryOptions
from noria.config.budget import Budget, Demand, choose_budget
from noria.config.faults import Fault, Problem, Remedy
from noria.config.hardware import Hardware
from noria.config.option import AUTO
from noria.config.shortage import Shortage
from noria.config.sizes import flag_size, flag_size_below, format_size
from noria.config.step_budget import most_step_tokens

# Where nobody states a length, memory is taken beyond the default share until requests of this many tokens fit.
COMFORTABLE_LEN = 2048
# Below this many tokens a model is of no use: its start is refused, unless the pool itself was stated.
SHORTEST_FITTED_LEN = 128


class LengthSource(Enum):
    ASKED = "asked"
    MODEL = "model"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class LengthGoal:
    """The longest request to aim at. Only one that was asked for as a number is kept or refused."""

    num_tokens: int
    source: LengthSource
    reason: str

    @property
    def is_fixed(self) -> bool:
        return self.source is LengthSource.ASKED


@dataclass(frozen=True, slots=True)
class Sizing:
    """A request of max_model_len fits the pool, the whole fits the budget."""

    max_model_len: int
    num_blocks: int
    budget: Budget


def length_goal(asked: EngineOptions, max_position: int) -> LengthGoal:
    """What max_model_len aims at. max_position: the longest sequence that can be served, in tokens."""
    length = asked.memory.max_model_len
    if length is None:
        return LengthGoal(max_position, LengthSource.MODEL, "the model's own")
    if length != AUTO:
        return LengthGoal(min(int(length), max_position), LengthSource.ASKED, "asked for")
    step = most_step_tokens(asked)
    if asked.scheduler.enable_chunked_prefill or step >= max_position:
        return LengthGoal(max_position, LengthSource.AUTO, "auto: as long as the model allows")
    return LengthGoal(step, LengthSource.AUTO, "auto: the longest prompt that one step reads whole")


def size_by_memory(
    goal: LengthGoal, demand: Demand, asked_share: float | None, hardware: Hardware, max_num_seqs: int
) -> Sizing | Problem:
    """The pool that the budget leaves, and the length where it is not fixed."""
    wanted = goal.num_tokens if goal.is_fixed else min(goal.num_tokens, COMFORTABLE_LEN)
    shortest = goal.num_tokens if goal.is_fixed else min(goal.num_tokens, SHORTEST_FITTED_LEN)
    budget = choose_budget(asked_share, demand.with_one_request(wanted), hardware)
    if demand.with_one_request(shortest) > budget.num_bytes:
        shortage = Shortage(demand, hardware, budget, shortest, demand.num_blocks(shortest))
        shorter = demand.longest_within(budget.num_bytes, shortest)
        changes = (Remedy({"max_model_len": str(shorter)}),) if goal.is_fixed and shorter else ()
        return shortage.problem(changes)
    length = goal.num_tokens
    if not goal.is_fixed:
        length = demand.longest_within(budget.num_bytes, goal.num_tokens)
    # More than all running requests can use would serve the prefix cache alone: that takes a stated pool.
    most = max_num_seqs * demand.num_blocks(length)
    if demand.max_blocks is not None:
        most = min(most, demand.max_blocks)
    return Sizing(length, min(demand.blocks_within(budget.num_bytes, length), most), budget)


def size_stated_pool(
    goal: LengthGoal, demand: Demand, memory: MemoryOptions, hardware: Hardware
) -> Sizing | Problem:
    """The pool as stated, in blocks or in bytes, and the length where it is not fixed."""
    num_blocks = memory.num_gpu_blocks_override or (memory.kv_cache_memory or 0) // demand.block_bytes
    if num_blocks == 0:
        return _no_block(demand, memory)
    length = goal.num_tokens
    if not goal.is_fixed:
        length = min(length, num_blocks * demand.block_size)
    if demand.num_blocks(length) > num_blocks:
        return _too_long(length, num_blocks, demand, memory)
    needed = demand.with_blocks(length, num_blocks)
    budget = choose_budget(memory.gpu_memory_utilization, needed, hardware)
    if needed > budget.num_bytes:
        fits = demand.blocks_within(budget.num_bytes, length)
        changes = (_pool_within(fits, demand, memory),) if fits > 0 else ()
        return Shortage(demand, hardware, budget, length, num_blocks).problem(changes)
    return Sizing(length, num_blocks, budget)


def _no_block(demand: Demand, memory: MemoryOptions) -> Problem:
    text = (
        f"--kv-cache-memory {memory.kv_cache_memory} holds no block: one block of {demand.block_size} tokens "
        f"takes {demand.block_bytes} bytes"
    )
    return Problem(Fault.NO_BLOCK, text, (_pool_of(1, demand, memory),))


def _too_long(length: int, num_blocks: int, demand: Demand, memory: MemoryOptions) -> Problem:
    needed = demand.num_blocks(length)
    room = num_blocks * demand.block_size
    text = (
        f"one request of {length} tokens (--max-model-len) takes {needed} blocks of the KV cache "
        f"({format_size(needed * demand.block_bytes)}), but it is stated to have {num_blocks} "
        f"({format_size(num_blocks * demand.block_bytes)}, {room} tokens)"
    )
    remedies = (Remedy({"max_model_len": str(room)}), _pool_of(needed, demand, memory))
    return Problem(Fault.BEYOND_POOL, text, remedies)


def _pool_within(num_blocks: int, demand: Demand, memory: MemoryOptions) -> Remedy:
    """A pool of `num_blocks` at most, in the words in which it was stated."""
    if memory.num_gpu_blocks_override is not None:
        return Remedy({"num_gpu_blocks_override": str(num_blocks)})
    return Remedy({"kv_cache_memory": flag_size_below(num_blocks * demand.block_bytes)})


def _pool_of(num_blocks: int, demand: Demand, memory: MemoryOptions) -> Remedy:
    """A pool of `num_blocks` at least, in the words in which it was stated."""
    if memory.num_gpu_blocks_override is not None:
        return Remedy({"num_gpu_blocks_override": str(num_blocks)})
    return Remedy({"kv_cache_memory": flag_size(num_blocks * demand.block_bytes)})
