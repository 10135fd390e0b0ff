"""How much one step computes where nobody stated it: what the model, timed at start, computes in a short time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from noria.config.asked import EngineOptions
from noria.config.engine import LatencyTarget, StepCost
from noria.config.hardware import Hardware
from noria.config.model import ModelConfig
from noria.config.resolved import Choice, Resolved

STEP_CHOICE = "max_num_batched_tokens"

MOST_TOKENS = 2048
# Fewer would read the weights too often for what they compute: a step that has to take longer for them, does.
FEWEST_TOKENS = 64
_ROUNDS = (
    4  # of fitting: what a chunk's own tokens attend to, and then what is left for the tokens themselves
)
TARGET_S = 0.1  # a gap between two tokens that a reader does not notice


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time that a step took: num_new tokens of one sequence that follow num_computed others."""

    num_new: int
    num_computed: int
    seconds: float


def most_step_tokens(asked: EngineOptions) -> int:
    """What is stated, or the most that timing may come to: memory is laid out for it."""
    return asked.scheduler.max_num_batched_tokens or MOST_TOKENS


def is_step_open(asked: EngineOptions, model: ModelConfig, hardware: Hardware) -> bool:
    """Whether timing has a say: on a CPU, where nothing is stated, and prompts may be cut or by nature are whole."""
    scheduler = asked.scheduler
    is_stated = scheduler.max_num_batched_tokens is not None and not scheduler.has_latency_target
    may_be_timed = scheduler.enable_chunked_prefill or model.encoder is not None
    return hardware.device == "cpu" and not is_stated and may_be_timed


def settle_step(resolved: Resolved, times: Sequence[StepTime]) -> Resolved:
    """The settings with what a step may compute settled by these timings. A pure function.

    times: at least one with nothing computed before. The number of tokens is a whole number of blocks, at least
    max_num_seqs, so that every running request can advance in a step; where prompts are never cut, at least
    max_model_len.
    """
    config = resolved.config
    scheduler, block_size = config.scheduler, config.cache.block_size
    cost = fit_cost(times)
    if scheduler.latency is not None:
        return _paced(resolved, scheduler.latency, cost)
    in_time = cost.tokens_within(cost.target_s - cost.fixed_s, 0)
    fewest = scheduler.max_num_seqs if scheduler.enable_chunked_prefill else scheduler.max_model_len
    tokens = max(in_time // block_size * block_size, -(-fewest // block_size) * block_size)
    tokens = min(tokens, scheduler.max_num_batched_tokens)
    needed = "max_num_seqs; prompts" if scheduler.enable_chunked_prefill else "max_model_len; shorter ones"
    choice = Choice(STEP_CHOICE, tokens, _reason(tokens, in_time, needed, cost, times))
    return replace(
        resolved,
        config=replace(config, scheduler=replace(scheduler, max_num_batched_tokens=tokens, step_cost=cost)),
        choices=tuple(choice if known.name == STEP_CHOICE else known for known in resolved.choices),
        is_step_open=False,
    )


def _paced(resolved: Resolved, target: LatencyTarget, cost: StepCost) -> Resolved:
    """The most tokens stay as they are: what each step computes follows from the target and its cost."""
    scheduler = resolved.config.scheduler
    if target.itl_s is not None:
        cost = replace(cost, target_s=target.itl_s)
    in_time = cost.tokens_within(max(0.0, cost.target_s - cost.fixed_s), 0)
    told = f"at most; about {in_time} tokens beside answers, for {1e3 * cost.target_s:.0f} ms, corrected while running"
    choice = Choice(STEP_CHOICE, scheduler.max_num_batched_tokens, told)
    return replace(
        resolved,
        config=replace(resolved.config, scheduler=replace(scheduler, step_cost=cost)),
        choices=tuple(choice if known.name == STEP_CHOICE else known for known in resolved.choices),
        is_step_open=False,
    )


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


def _reason(tokens: int, in_time: int, needed: str, cost: StepCost, times: Sequence[StepTime]) -> str:
    """needed: for what there are more tokens than go in the time, and what keeps to it."""
    largest = max(times, key=lambda time: (time.num_new, -time.num_computed, -time.seconds))
    measured = f"measured {1e3 * largest.seconds:.1f} ms for {largest.num_new} tokens"
    if tokens > in_time:
        told = f"as many as {needed} take {in_time} of them, about {1e3 * cost.target_s:.0f} ms"
    else:
        full_s = cost.fixed_s + cost.seconds(tokens, 0)
        told = f"tokens: a full step takes about {1e3 * full_s:.0f} ms"
    return f"{told} ({measured})"
