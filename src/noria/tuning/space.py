"""Which settings are tried: the grid, and which of them decide alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noria.config.engine import EngineConfig, SchedulerConfig
from noria.config.errors import ConfigError
from noria.tuning.setting import Setting
from noria.tuning.simulated import Peak

NUM_SEQS = (8, 16, 32, 64, 128, 256, 512)
STEP_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384)
BLOCK_SIZES = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Space:
    """max_model_len: by block size, the least that the workload needs; None where what was measured is no longer.
    itl_slo_ms: the target of a latency-aware budget, None where none can be simulated."""

    num_seqs: tuple[int, ...] = NUM_SEQS
    step_tokens: tuple[int, ...] = STEP_TOKENS
    block_sizes: tuple[int, ...] = BLOCK_SIZES
    prefix_caching: tuple[bool, ...] = (True, False)
    itl_slo_ms: float | None = None

    def first_round(self) -> list[Setting]:
        """How much runs at once and in a step, what is likeliest to be good first; the rest is as measured."""
        pairs: list[Setting] = [
            Setting(max_num_seqs=seqs, max_num_batched_tokens=tokens)
            for seqs in self.num_seqs
            for tokens in self.step_tokens
            if tokens >= seqs
        ]
        if self.itl_slo_ms is not None:
            pairs += [Setting(max_num_seqs=seqs, itl_slo_ms=self.itl_slo_ms) for seqs in self.num_seqs]
        return sorted(pairs, key=_unlikeliness)

    def second_round(self, best: Sequence[Setting]) -> list[tuple[Setting, Setting]]:
        """The best of the first, each with its variants: with other blocks, and with and without the prefix cache."""
        return [
            (setting, replace(setting, block_size=size, enable_prefix_caching=is_on))
            for setting in best
            for size in self.block_sizes
            for is_on in self.prefix_caching
        ]

    def boundary(self) -> Setting:
        """The corner with the most of everything: where a simulation is most likely to be wrong."""
        return Setting(max_num_seqs=self.num_seqs[-1], max_num_batched_tokens=self.step_tokens[-1])


def _unlikeliness(setting: Setting) -> float:
    """Distance from the middle in powers of two: 64 at once, 1024 tokens a step."""
    seqs = abs(math.log2((setting.max_num_seqs or 64) / 64))
    tokens = abs(math.log2((setting.max_num_batched_tokens or 1024) / 1024))
    return seqs + tokens


def neighbours(setting: Setting, measured: EngineConfig, space: Space) -> Iterator[tuple[str, Setting]]:
    """One thing changed at a time, in words and as a setting: half and twice as much, other blocks, as measured."""
    scheduler, cache = measured.scheduler, measured.cache
    seqs = setting.max_num_seqs or scheduler.max_num_seqs
    tokens = setting.max_num_batched_tokens or scheduler.full_step_tokens
    for factor in (0.5, 2):
        yield _changed(setting, "max_num_seqs", max(1, int(seqs * factor)))
    if setting.itl_slo_ms is None:
        for factor in (0.5, 2):
            yield _changed(setting, "max_num_batched_tokens", max(seqs, int(tokens * factor)))
    else:
        yield f"no ITL target, {_by_itself(scheduler)}", replace(setting, itl_slo_ms=None)
    size = setting.block_size or cache.block_size
    for other in (size // 2, size * 2):
        if other in space.block_sizes:
            yield _changed(setting, "block_size", other)
    is_on = setting.enable_prefix_caching
    is_on = cache.enable_prefix_caching if is_on is None else is_on
    yield _changed(setting, "enable_prefix_caching", not is_on)
    if setting.max_model_len is not None:
        yield f"max_model_len {scheduler.max_model_len}", replace(setting, max_model_len=None)


def _by_itself(scheduler: SchedulerConfig) -> str:
    if scheduler.step_cost is None:
        return f"{scheduler.max_num_batched_tokens} tokens a step"
    return f"steps of about {1e3 * scheduler.step_cost.target_s:.0f} ms"


def _changed(setting: Setting, name: str, value: int | bool) -> tuple[str, Setting]:
    word = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
    change: dict[str, Any] = {name: value}
    return f"{name} {word}", replace(setting, **change)


def feasible(setting: Setting, measured: EngineConfig) -> str:
    """Why a setting cannot be, in the memory that was measured; empty where it can."""
    try:
        config = setting.config(measured)
    except ConfigError as error:
        return str(error)
    if config.scheduler.max_num_seqs > config.cache.num_blocks:
        return (
            f"{config.scheduler.max_num_seqs} requests at once need a block each, and there are "
            f"{config.cache.num_blocks}"
        )
    return ""


def decide_alike(known: EngineConfig, other: EngineConfig, peak: Peak) -> bool:
    """Whether every step of `known` that was simulated would have been the same under `other`: they differ in bounds
    alone that were never reached. peak: of the simulations of `known`."""
    bounds = (
        (known.scheduler.max_num_seqs, other.scheduler.max_num_seqs, peak.num_running),
        (
            known.scheduler.max_num_batched_tokens,
            other.scheduler.max_num_batched_tokens,
            peak.num_step_tokens,
        ),
    )
    is_open = all(one == two or min(one, two) > most for one, two, most in bounds)
    return is_open and _without_bounds(known) == _without_bounds(other)


def _without_bounds(config: EngineConfig) -> EngineConfig:
    scheduler = replace(config.scheduler, max_num_seqs=1, max_num_batched_tokens=1)
    return replace(config, scheduler=scheduler)
