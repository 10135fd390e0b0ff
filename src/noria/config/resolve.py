"""From what was asked to settings that work, or to a refusal that says what would."""

from __future__ import annotations

from noria.config.advice import explain
from noria.config.asked import EngineOptions, SchedulerOptions
from noria.config.budget import Demand
from noria.config.choices import explain_choices
from noria.config.encoders import suited
from noria.config.engine import (
    AdmissionPolicy,
    CacheConfig,
    EngineConfig,
    LatencyTarget,
    PrefixIsolation,
    SchedulerConfig,
    SchedulingPolicy,
)
from noria.config.footprint import Footprint
from noria.config.hardware import Hardware
from noria.config.model import ModelConfig
from noria.config.option import AUTO
from noria.config.pool import Sizing
from noria.config.problems import refuse
from noria.config.resolved import MemoryTable, Resolved
from noria.config.settle import Settlement, settle
from noria.config.step_budget import is_step_open, most_step_tokens


def resolve_dtype(asked: EngineOptions, device: str) -> str:
    """float32 | bfloat16 | float16: what the footprint given to `resolve` must be in."""
    if asked.model.dtype != AUTO:
        return asked.model.dtype
    return "float32" if device == "cpu" else "bfloat16"


def resolve_kv_dtype(asked: str, dtype: str, backend: str) -> str:
    """float32 | bfloat16 | float16 | int8: what the footprint given to `resolve` must hold keys and values in.

    asked: `kv_cache_dtype`. dtype: of `resolve_dtype`. backend: native | torch.
    """
    if asked != AUTO:
        return asked
    # Measured on SmolLM2-135M: float16 KV moves its distributions by a KL of 5e-7 from float32 KV.
    return "float16" if backend == "native" else dtype


def resolve(
    asked: EngineOptions,
    model: ModelConfig,
    hardware: Hardware,
    footprint: Footprint,
    model_name: str,
    others: tuple[Footprint, ...] = (),
) -> Resolved:
    """Settings that fit each other, the model and the machine. A pure function.

    footprint: of this model in the dtypes of `resolve_dtype` and `resolve_kv_dtype`, quantised as asked.
    model_name: identifies the weights. others: of the same model in other formats, the mildest change first, to be
    advised where they help.
    Raises ConfigError that tells everything impossible at once, with the numbers and what would work.
    """
    dtype = resolve_dtype(asked, hardware.device)
    formats = (dtype, asked.model.quantization)
    assert (footprint.dtype, footprint.quantization) == formats, (
        f"a footprint of {footprint}, wanted {formats}"
    )
    assert asked.model.device in (AUTO, hardware.device), (
        f"probed {hardware.device}, not {asked.model.device}"
    )
    max_position = min(model.max_position, footprint.max_position)
    # A change of formats leaves auto to auto, so that this is told apart from a stated format.
    is_kv_stated = asked.memory.kv_cache_dtype != AUTO
    footprints = {
        (one.dtype, one.quantization, one.kv_dtype if is_kv_stated else AUTO): one
        for one in (*others, footprint)
    }

    def attempt(options: EngineOptions) -> Settlement:
        options = suited(options, model, max_position)
        dtype = resolve_dtype(options, hardware.device)
        takes = footprints[dtype, options.model.quantization, options.memory.kv_cache_dtype]
        return settle(options, max_position, hardware, takes, others)

    asked = suited(asked, model, max_position)
    settled = attempt(asked)
    refuse(explain(settled.problems, asked, attempt))
    sizing = settled.sizing
    assert sizing is not None, "no sizes, and no problem either"
    config = EngineConfig(
        model=model,
        model_name=model_name,
        scheduler=_scheduler_config(asked, settled.max_num_seqs, sizing),
        cache=_cache_config(asked, sizing, footprint),
        dtype=dtype,
        device=hardware.device,
        num_threads=asked.threads.num_threads or hardware.num_cpus,
        quantization=asked.model.quantization,
        seed=asked.model.seed,
        rule_time_limit_s=asked.rules.rule_time_limit_s,
    )
    choices = explain_choices(asked, hardware, settled.goal, sizing, config)
    memory = _memory_table(settled.demand, hardware, sizing)
    return Resolved(config, choices, memory, is_step_open(asked, model, hardware))


def _cache_config(asked: EngineOptions, sizing: Sizing, footprint: Footprint) -> CacheConfig:
    memory = asked.memory
    return CacheConfig(
        memory.block_size,
        sizing.num_blocks,
        memory.enable_prefix_caching,
        PrefixIsolation(memory.prefix_cache_isolation),
        footprint.kv_dtype,
    )


def _scheduler_config(asked: EngineOptions, max_num_seqs: int, sizing: Sizing) -> SchedulerConfig:
    scheduler = asked.scheduler
    return SchedulerConfig(
        max_num_batched_tokens=most_step_tokens(asked),
        max_num_seqs=max_num_seqs,
        max_model_len=sizing.max_model_len,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        admission_policy=AdmissionPolicy(scheduler.admission_policy),
        scheduling_policy=SchedulingPolicy(scheduler.scheduling_policy),
        priority_aging_s=scheduler.priority_aging_s,
        latency=_latency(scheduler),
    )


def _latency(asked: SchedulerOptions) -> LatencyTarget | None:
    if not asked.has_latency_target:
        return None
    itl_ms, ttft_ms = asked.itl_slo_ms, asked.ttft_slo_ms
    return LatencyTarget(None if itl_ms is None else itl_ms / 1e3, None if ttft_ms is None else ttft_ms / 1e3)


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
