"""From what was asked to settings that work, or to a refusal that says what would."""

from __future__ import annotations

from dataclasses import replace

from noria.config.asked import EngineOptions
from noria.config.budget import Demand, demand_of
from noria.config.choices import explain_choices
from noria.config.engine import (
    AdmissionPolicy,
    CacheConfig,
    EngineConfig,
    SchedulerConfig,
    SchedulingPolicy,
)
from noria.config.errors import ConfigError
from noria.config.footprint import Footprint
from noria.config.hardware import Hardware
from noria.config.model import ModelConfig
from noria.config.option import AUTO
from noria.config.pool import LengthGoal, PoolQuestion, Sizing, length_goal
from noria.config.problems import refuse
from noria.config.resolved import MemoryTable, Resolved
from noria.config.sizing import size_pool

# Steps that a refusal suggests where the asked ones take too much workspace.
_LEAN_BATCHED_TOKENS = 256
_LEAN_SEQS = 16


def resolve_dtype(asked: EngineOptions, hardware: Hardware) -> str:
    """float32 | bfloat16 | float16: what the footprint given to `resolve` must be in."""
    if asked.model.dtype != AUTO:
        return asked.model.dtype
    return "float32" if hardware.device == "cpu" else "bfloat16"


def resolve(
    asked: EngineOptions, model: ModelConfig, hardware: Hardware, footprint: Footprint, model_name: str
) -> Resolved:
    """Settings that fit each other, the model and the machine. A pure function.

    footprint: of this model in the dtype of `resolve_dtype`. model_name: identifies the weights.
    Raises ConfigError that tells everything impossible at once, with the numbers and what would work.
    """
    dtype = resolve_dtype(asked, hardware)
    assert footprint.dtype == dtype, f"the footprint is for {footprint.dtype}, wanted {dtype}"
    assert asked.model.device in (AUTO, hardware.device), (
        f"probed {hardware.device}, not {asked.model.device}"
    )
    max_position = min(model.max_position, footprint.max_position)
    goal = length_goal(asked, max_position)
    problems = _contradictions(asked, max_position)
    sizing = None
    try:
        sizing = size_pool(_pool_question(asked, goal, footprint, hardware))
    except ConfigError as error:
        problems.append(str(error))
    length = sizing.max_model_len if sizing else goal.num_tokens
    if length > asked.scheduler.max_num_batched_tokens and not asked.scheduler.enable_chunked_prefill:
        problems.append(_unschedulable(asked, length, footprint, hardware))
    refuse(problems)
    assert sizing is not None
    config = EngineConfig(
        model=model,
        model_name=model_name,
        scheduler=_scheduler_config(asked, sizing),
        cache=CacheConfig(asked.memory.block_size, sizing.num_blocks, asked.memory.enable_prefix_caching),
        dtype=dtype,
        device=hardware.device,
        num_threads=asked.threads.num_threads or hardware.num_cpus,
        seed=asked.model.seed,
    )
    table = _memory_table(_demand(asked, footprint, hardware), hardware, sizing)
    return Resolved(config, explain_choices(asked, hardware, goal, sizing, config), table)


def _num_seqs(asked: EngineOptions) -> int:
    """A running request advances by at least one token in a step, so more could never run."""
    return min(asked.scheduler.max_num_seqs, asked.scheduler.max_num_batched_tokens)


def _demand(asked: EngineOptions, footprint: Footprint, hardware: Hardware) -> Demand:
    tokens = asked.scheduler.max_num_batched_tokens
    return demand_of(footprint, hardware, tokens, _num_seqs(asked), asked.memory.block_size)


def _pool_question(
    asked: EngineOptions, goal: LengthGoal, footprint: Footprint, hardware: Hardware
) -> PoolQuestion:
    lean_seqs = min(_num_seqs(asked), _LEAN_SEQS)
    lean_tokens, lean_flags = asked.scheduler.max_num_batched_tokens, f"--max-num-seqs {lean_seqs}"
    if asked.scheduler.enable_chunked_prefill:
        lean_tokens = min(lean_tokens, _LEAN_BATCHED_TOKENS)
        lean_flags += f" --max-num-batched-tokens {lean_tokens}"
    return PoolQuestion(
        memory=asked.memory,
        goal=goal,
        demand=_demand(asked, footprint, hardware),
        leaner=demand_of(footprint, hardware, lean_tokens, lean_seqs, asked.memory.block_size),
        lean_flags=lean_flags,
        hardware=hardware,
        dtype=footprint.dtype,
        max_num_seqs=_num_seqs(asked),
    )


def _contradictions(asked: EngineOptions, max_position: int) -> list[str]:
    """What is impossible whatever the memory."""
    problems = []
    length, memory = asked.memory.max_model_len, asked.memory
    if isinstance(length, int) and length > max_position:
        problems.append(
            f"--max-model-len {length} is more than the {max_position} tokens that the model can attend to; "
            f"would work: --max-model-len {max_position}"
        )
    if memory.kv_cache_memory is not None and memory.num_gpu_blocks_override is not None:
        problems.append(
            f"--kv-cache-memory {memory.kv_cache_memory} and --num-gpu-blocks-override "
            f"{memory.num_gpu_blocks_override} both state the size of the KV cache; keep one of them"
        )
    return problems


def _unschedulable(asked: EngineOptions, length: int, footprint: Footprint, hardware: Hardware) -> str:
    """Why requests of `length` tokens need chunked prefill or larger steps."""
    tokens = asked.scheduler.max_num_batched_tokens
    origin = "from the model" if asked.memory.max_model_len is None else "asked for"
    remedies = f"--enable-chunked-prefill; or --max-model-len {tokens}"
    larger = replace(
        asked,
        memory=replace(asked.memory, max_model_len=length),
        scheduler=replace(asked.scheduler, max_num_batched_tokens=length),
    )
    try:
        size_pool(_pool_question(larger, length_goal(larger, length), footprint, hardware))
        remedies += f"; or --max-num-batched-tokens {length}"
    except ConfigError:  # larger steps take more workspace, and there is no room for it
        pass
    return (
        f"with chunked prefill off, max_num_batched_tokens ({tokens}) is less than max_model_len ({length}, "
        f"{origin}): a prompt longer than {tokens} tokens could never be scheduled. Would work: {remedies}"
    )


def _scheduler_config(asked: EngineOptions, sizing: Sizing) -> SchedulerConfig:
    scheduler = asked.scheduler
    return SchedulerConfig(
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_num_seqs=_num_seqs(asked),
        max_model_len=sizing.max_model_len,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        admission_policy=AdmissionPolicy(scheduler.admission_policy),
        scheduling_policy=SchedulingPolicy(scheduler.scheduling_policy),
        priority_aging_s=scheduler.priority_aging_s,
    )


def _memory_table(demand: Demand, hardware: Hardware, sizing: Sizing) -> MemoryTable:
    return MemoryTable(
        total_bytes=hardware.total_memory_bytes,
        total_source=hardware.memory_limit_source,
        available_bytes=hardware.available_memory_bytes,
        budget_bytes=sizing.budget.num_bytes,
        process_bytes=demand.process_bytes,
        weights_bytes=demand.weights_bytes,
        workspace_bytes=demand.workspace(sizing.max_model_len),
        block_size=demand.block_size,
        block_bytes=demand.block_bytes,
        num_blocks=sizing.num_blocks,
        max_model_len=sizing.max_model_len,
    )
