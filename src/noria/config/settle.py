"""The settings that depend on each other, settled together; what stands in the way is data, not an exception."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.asked import EngineOptions
from noria.config.budget import Demand, demand_of
from noria.config.faults import Fault, Problem, Remedy
from noria.config.footprint import Footprint
from noria.config.hardware import Hardware
from noria.config.option import AUTO
from noria.config.pool import LengthGoal, Sizing, length_goal, size_by_memory, size_stated_pool
from noria.config.step_budget import most_step_tokens

# Steps that are suggested where the asked ones take too much workspace.
_LEAN_BATCHED_TOKENS = 256
_LEAN_SEQS = 16


@dataclass(frozen=True, slots=True)
class Settlement:
    """sizing: None when the sizes themselves were impossible. It holds only if there are no problems."""

    goal: LengthGoal
    demand: Demand
    max_num_seqs: int
    sizing: Sizing | None
    problems: tuple[Problem, ...]


def settle(
    asked: EngineOptions,
    max_position: int,
    hardware: Hardware,
    footprint: Footprint,
    others: tuple[Footprint, ...] = (),
) -> Settlement:
    """max_position: of the model and its backend, in tokens. others: other formats of it. A pure function."""
    tokens = most_step_tokens(asked)
    # A running request advances by at least one token in a step, so more of them could never run.
    num_seqs = min(asked.scheduler.max_num_seqs, tokens)
    goal = length_goal(asked, max_position)
    demand = demand_of(footprint, hardware, tokens, num_seqs, asked.memory.block_size)
    problems = [*_beyond_model(asked, max_position), *_pool_stated_twice(asked)]
    if asked.memory.num_gpu_blocks_override is None and asked.memory.kv_cache_memory is None:
        answer = size_by_memory(goal, demand, asked.memory.gpu_memory_utilization, hardware, num_seqs)
    else:
        answer = size_stated_pool(goal, demand, asked.memory, hardware)
    sizing = None
    if isinstance(answer, Problem):
        answer = _with_other_formats(answer, asked, footprint, others)
        problems.append(_with_smaller_steps(answer, asked, num_seqs))
    else:
        sizing = answer
    length = sizing.max_model_len if sizing else goal.num_tokens
    problems += [*_beyond_step(asked, length), *_uncut_prompts(asked)]
    return Settlement(goal, demand, num_seqs, sizing, tuple(problems))


def _beyond_model(asked: EngineOptions, max_position: int) -> list[Problem]:
    length = asked.memory.max_model_len
    if not isinstance(length, int) or length <= max_position:
        return []
    text = f"--max-model-len {length} is more than the {max_position} tokens that the model can attend to"
    return [Problem(Fault.BEYOND_MODEL, text, (Remedy({"max_model_len": str(max_position)}),))]


def _pool_stated_twice(asked: EngineOptions) -> list[Problem]:
    size, num_blocks = asked.memory.kv_cache_memory, asked.memory.num_gpu_blocks_override
    if size is None or num_blocks is None:
        return []
    text = (
        f"--kv-cache-memory {size} and --num-gpu-blocks-override {num_blocks} both state the KV cache's size"
    )
    return [Problem(Fault.POOL_STATED_TWICE, text, otherwise=("one of them alone",))]


def _beyond_step(asked: EngineOptions, length: int) -> list[Problem]:
    tokens = most_step_tokens(asked)
    if asked.scheduler.enable_chunked_prefill or length <= tokens:
        return []
    origin = "from the model" if asked.memory.max_model_len is None else "asked for"
    text = (
        f"with chunked prefill off, max_num_batched_tokens ({tokens}) is less than max_model_len ({length}, "
        f"{origin}): a prompt longer than {tokens} tokens could never be scheduled"
    )
    remedies = (
        Remedy({"enable_chunked_prefill": None}),
        Remedy({"max_model_len": str(tokens)}),
        Remedy({"max_num_batched_tokens": str(length)}),
    )
    return [Problem(Fault.BEYOND_STEP, text, remedies)]


def _uncut_prompts(asked: EngineOptions) -> list[Problem]:
    if asked.scheduler.enable_chunked_prefill or not asked.scheduler.has_latency_target:
        return []
    text = "with chunked prefill off, steps are as long as prompts are: --itl-slo-ms and --ttft-slo-ms cannot be kept"
    remedies = (Remedy({"enable_chunked_prefill": None}),)
    return [Problem(Fault.UNCUT_PROMPTS, text, remedies, otherwise=("no latency target",))]


def _with_other_formats(
    problem: Problem, asked: EngineOptions, footprint: Footprint, others: tuple[Footprint, ...]
) -> Problem:
    """Where memory is short, fewer bits a number may help."""
    if problem.fault is not Fault.MEMORY:
        return problem
    now = _formats(footprint, asked)
    formats = (_formats(one, asked) for one in others)
    changes = ({name: text for name, text in other.items() if text != now[name]} for other in formats)
    remedies = (*problem.remedies, *(Remedy(change) for change in changes if change))
    return Problem(problem.fault, problem.text, remedies, problem.otherwise)


def _formats(footprint: Footprint, asked: EngineOptions) -> dict[str, str]:
    """By setting. What the KV cache's is left to, auto, follows from the others."""
    formats = {"dtype": footprint.dtype, "quantization": footprint.quantization}
    if asked.memory.kv_cache_dtype != AUTO:
        formats["kv_cache_dtype"] = footprint.kv_dtype
    return formats


def _with_smaller_steps(problem: Problem, asked: EngineOptions, num_seqs: int) -> Problem:
    """Where memory is short, smaller steps may help; how small they may be depends on the other settings."""
    if problem.fault is not Fault.MEMORY:
        return problem
    changes = {"max_num_seqs": str(min(num_seqs, _LEAN_SEQS))}
    if asked.scheduler.enable_chunked_prefill:
        tokens = min(most_step_tokens(asked), _LEAN_BATCHED_TOKENS)
        changes["max_num_batched_tokens"] = str(tokens)
    remedies = (*problem.remedies, Remedy(changes))
    return Problem(problem.fault, problem.text, remedies, problem.otherwise)
