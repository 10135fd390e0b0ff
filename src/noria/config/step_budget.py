"""How much one step computes where nobody stated it: what the model, timed at start, computes in a short time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from noria.config.asked import EngineOptions
from noria.config.engine import FEWEST_TOKENS, SchedulerConfig, StepCost
from noria.config.hardware import Hardware
from noria.config.model import ModelConfig
from noria.config.resolved import Choice, Resolved

STEP_CHOICE = "max_num_batched_tokens"

MOST_TOKENS = 2048
TARGET_S = 0.1  # a gap between two tokens that a reader does not notice
_ROUNDS = (
    4  # of fitting: what a chunk's own tokens attend to, and then what is left for the tokens themselves
)


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time that a step took: num_new tokens of one sequence that follow num_computed others."""

    num_new: int
    num_computed: int
    seconds: float


def most_step_tokens(asked: EngineOptions) -> int:
    """What is stated, or the most that a step may compute where time is its limit: memory is laid out for it."""
    return asked.scheduler.max_num_batched_tokens or MOST_TOKENS


def is_step_open(asked: EngineOptions, model: ModelConfig, hardware: Hardware) -> bool:
    """Whether timing has a say: on a CPU, where nothing is stated, and prompts may be cut or by nature are whole."""
    scheduler = asked.scheduler
    is_stated = scheduler.max_num_batched_tokens is not None and not scheduler.has_latency_target
    may_be_timed = scheduler.enable_chunked_prefill or model.encoder is not None
    return hardware.device == "cpu" and not is_stated and may_be_timed


def settle_step(resolved: Resolved, times: Sequence[StepTime]) -> Resolved:
    """The settings with what a step may compute settled by these timings. A pure function.

    times: at least one with nothing computed before. Where prompts may be cut, the most tokens stay as they are: what
    each step computes follows from its cost and what it may take. Where they are never cut it is a number, of whole
    blocks, at least max_model_len.
    """
    cost = fit_cost(times)
    scheduler = resolved.config.scheduler
    scheduler = replace(scheduler, step_cost=cost)
    if scheduler.enable_chunked_prefill:
        reason = f"{_paced_reason(scheduler, cost)}, corrected while running ({_measured(times)})"
    else:
        in_time = cost.tokens_within(max(0.0, scheduler.gap_s - cost.fixed_s), 0)
        tokens = _whole_tokens(scheduler, in_time, resolved.config.cache.block_size)
        scheduler = replace(scheduler, max_num_batched_tokens=tokens)
        reason = f"{_whole_reason(tokens, in_time, scheduler.gap_s, cost)} ({_measured(times)})"
    choice = Choice(STEP_CHOICE, scheduler.max_num_batched_tokens, reason)
    return replace(
        resolved,
        config=replace(resolved.config, scheduler=scheduler),
        choices=tuple(choice if known.name == STEP_CHOICE else known for known in resolved.choices),
        is_step_open=False,
    )


def _paced_reason(scheduler: SchedulerConfig, cost: StepCost) -> str:
    most, tokens = scheduler.max_num_batched_tokens, scheduler.full_step_tokens
    if tokens == most:
        return f"at most, which takes about {1e3 * (cost.fixed_s + cost.seconds(most, 0)):.0f} ms"
    return f"at most; about {tokens} beside answers, for {1e3 * scheduler.gap_s:.0f} ms"


def _whole_tokens(scheduler: SchedulerConfig, in_time: int, block_size: int) -> int:
    longest = -(-scheduler.max_model_len // block_size) * block_size
    return min(max(in_time // block_size * block_size, longest), scheduler.max_num_batched_tokens)


def _whole_reason(tokens: int, in_time: int, gap_s: float, cost: StepCost) -> str:
    if tokens > in_time:
        return f"as many as max_model_len; shorter ones take {in_time} of them, about {1e3 * gap_s:.0f} ms"
    full_s = cost.fixed_s + cost.seconds(tokens, 0)
    return f"tokens: a full step takes about {1e3 * full_s:.0f} ms"


def _measured(times: Sequence[StepTime]) -> str:
    largest = max(times, key=lambda time: (time.num_new, -time.num_computed, -time.seconds))
    return f"measured {1e3 * largest.seconds:.1f} ms for {largest.num_new} tokens"


def fit_cost(times: Sequence[StepTime]) -> StepCost:
    """The cost that explains the timings; of several of the same step the shortest counts, the rest is noise.

    Where they contradict each other (a larger step took less time), the longest time a token counts.
    """
    best: dict[tuple[int, int], float] = {}
    for time in times:
        key = (time.num_new, time.num_computed)
        best[key] = min(time.seconds, best.get(key, time.seconds))
    plain = {num_new: seconds for (num_new, num_computed), seconds in best.items() if not num_computed}
    behind = {key: seconds for key, seconds in best.items() if key[1]}
    cost = StepCost(TARGET_S, 0.0, 0.0, 0.0)
    for _ in range(_ROUNDS):
        fixed_s, token_s = _line({n: s - min(cost.pair_s * n * n, s) / 2 for n, s in plain.items()})
        cost = StepCost(TARGET_S, fixed_s, token_s, 0.0)
        pairs = [(s - fixed_s - n * token_s) / (n * (c + n / 2)) for (n, c), s in behind.items()]
        cost = replace(cost, pair_s=max([0.0, *pairs]))
    return replace(cost, target_s=max(TARGET_S, fixed_s + cost.seconds(FEWEST_TOKENS, 0)))


def _line(points: Mapping[int, float]) -> tuple[float, float]:
    """(seconds of an empty step, seconds a token) through the smallest and the largest step, by tokens."""
    few, many = min(points), max(points)
    token_s = (points[many] - points[few]) / (many - few) if many > few else 0.0
    fixed_s = points[few] - few * token_s
    if token_s > 0 and fixed_s >= 0:
        return fixed_s, token_s
    return 0.0, max(seconds / num_new for num_new, seconds in points.items())
