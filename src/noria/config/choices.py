"""Why each value that Noria settled is what it is."""

from __future__ import annotations

from noria.config.asked import EngineOptions
from noria.config.budget import step_blocks
from noria.config.encoders import encoder_choices
from noria.config.engine import EngineConfig
from noria.config.hardware import Hardware
from noria.config.option import AUTO
from noria.config.pool import COMFORTABLE_LEN, LengthGoal, LengthSource, Sizing
from noria.config.resolved import Choice
from noria.config.sizes import format_size
from noria.config.step_budget import STEP_CHOICE, is_step_open

_TOO_SHORT = (
    "many prompts and answers are longer and will be refused: give it more memory (--gpu-memory-utilization, "
    "--kv-cache-memory), or less to hold (--kv-cache-dtype, --quantization)"
)


def explain_choices(
    asked: EngineOptions, hardware: Hardware, goal: LengthGoal, sizing: Sizing, config: EngineConfig
) -> tuple[Choice, ...]:
    """The choices behind `config`, in the order in which they were made."""
    return (
        _device(asked, config),
        _dtype(asked, config),
        _kv_dtype(asked, config),
        _threads(asked, hardware, config),
        _budget(sizing),
        _length(asked, goal, sizing),
        _blocks(asked, sizing, config),
        _seqs(asked, config),
        _step(asked, hardware, config),
        *encoder_choices(config.model),
    )


def _device(asked: EngineOptions, config: EngineConfig) -> Choice:
    return Choice("device", config.device, "the best one here" if asked.model.device == AUTO else "asked for")


def _dtype(asked: EngineOptions, config: EngineConfig) -> Choice:
    reason = "asked for"
    if asked.model.dtype == AUTO:
        reason = "the default on a CPU, and the most exact" if config.device == "cpu" else "the default"
    return Choice("dtype", config.dtype, reason)


def _kv_dtype(asked: EngineOptions, config: EngineConfig) -> Choice:
    dtype = config.cache.dtype
    if asked.memory.kv_cache_dtype != AUTO:
        reason = "asked for"
    elif dtype == config.dtype:
        reason = "that of dtype"
    else:
        reason = "half of float32 to hold and to read, and finer than bfloat16"
    return Choice("kv_cache_dtype", dtype, reason)


def _threads(asked: EngineOptions, hardware: Hardware, config: EngineConfig) -> Choice:
    cpus = f"{hardware.num_cpus} CPUs that this process may use ({hardware.cpu_limit_source})"
    if asked.threads.num_threads is None:
        return Choice("num_threads", config.num_threads, f"the {cpus}")
    if config.num_threads > hardware.num_cpus:
        reason = f"asked for; more than the {cpus}, so threads wait for each other"
        return Choice("num_threads", config.num_threads, reason, is_notice=True)
    return Choice("num_threads", config.num_threads, f"asked for; of the {cpus}")


def _budget(sizing: Sizing) -> Choice:
    budget = sizing.budget
    return Choice("memory", format_size(budget.num_bytes), budget.reason, is_notice=budget.was_raised)


def _length(asked: EngineOptions, goal: LengthGoal, sizing: Sizing) -> Choice:
    length = sizing.max_model_len
    if length == goal.num_tokens:
        return Choice("max_model_len", length, goal.reason)
    memory = asked.memory
    is_stated = memory.num_gpu_blocks_override is not None or memory.kv_cache_memory is not None
    is_short = length < COMFORTABLE_LEN and not is_stated
    remedy = f"; {_TOO_SHORT}" if is_short else ""
    if goal.source is LengthSource.AUTO:
        reason = "auto: the longest request that the KV cache holds"
        return Choice("max_model_len", length, reason + remedy, is_notice=is_short)
    reason = f"shortened from the model's {goal.num_tokens} to what the KV cache holds"
    return Choice("max_model_len", length, reason + remedy, is_notice=True)


def _blocks(asked: EngineOptions, sizing: Sizing, config: EngineConfig) -> Choice:
    size = config.cache.block_size
    if asked.memory.num_gpu_blocks_override is not None:
        reason = "asked for"
    elif asked.memory.kv_cache_memory is not None:
        reason = f"what the stated {format_size(asked.memory.kv_cache_memory)} hold, {size} tokens each"
    elif config.model.encoder is not None and sizing.num_blocks == _step_blocks(config):
        reason = "as many as the texts of one step take: an encoder keeps nothing after it"
    elif sizing.num_blocks == config.scheduler.max_num_seqs * -(-sizing.max_model_len // size):
        reason = "as many as max_num_seqs requests of max_model_len take"
    else:
        reason = f"what the budget leaves beside everything else, {size} tokens each"
    return Choice("num_blocks", sizing.num_blocks, reason)


def _step_blocks(config: EngineConfig) -> int:
    scheduler = config.scheduler
    return step_blocks(scheduler.max_num_batched_tokens, scheduler.max_num_seqs, config.cache.block_size)


def _seqs(asked: EngineOptions, config: EngineConfig) -> Choice:
    num_seqs = config.scheduler.max_num_seqs
    if num_seqs == asked.scheduler.max_num_seqs:
        return Choice("max_num_seqs", num_seqs, "requests that run at once, memory permitting")
    reason = f"lowered from {asked.scheduler.max_num_seqs}: a step of {num_seqs} tokens advances no more"
    return Choice("max_num_seqs", num_seqs, reason, is_notice=True)


def _step(asked: EngineOptions, hardware: Hardware, config: EngineConfig) -> Choice:
    if is_step_open(asked, config.model, hardware):
        reason = "at most; timed once the weights are in memory, so that a step stays short"
        return Choice(STEP_CHOICE, config.scheduler.max_num_batched_tokens, reason)
    chunked = "cut into pieces" if config.scheduler.enable_chunked_prefill else "never cut"
    reason = f"tokens in one step at most; longer prompts are {chunked}"
    return Choice(STEP_CHOICE, config.scheduler.max_num_batched_tokens, reason)
