"""Other settings for a simulated engine, by the names that flags have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from noria.config.engine import (
    AdmissionPolicy,
    EngineConfig,
    LatencyTarget,
    SchedulingPolicy,
)
from noria.config.errors import ConfigError

Change = Callable[[EngineConfig, Any], EngineConfig]


def with_changes(config: EngineConfig, changes: Iterable[str]) -> EngineConfig:
    """changes: texts as in max_num_seqs=64. Raises ConfigError for a name or a value that is none, and for settings
    that cannot work together.
    """
    for text in changes:
        name, _, value = text.partition("=")
        known = _CHANGES.get(name.strip().removeprefix("--").replace("-", "_"))
        if known is None:
            raise ConfigError(f"{name!r} cannot be changed in a simulation; these can: {', '.join(_CHANGES)}")
        read, change = known
        try:
            config = change(config, read(value.strip()))
        except (ValueError, KeyError):
            raise ConfigError(f"what-if {text}: {value!r} is no value for {name}") from None
    return _checked(config)


def _checked(config: EngineConfig) -> EngineConfig:
    scheduler, cache = config.scheduler, config.cache
    room = cache.num_blocks * cache.block_size
    if scheduler.max_model_len > room:
        raise ConfigError(
            f"{cache.num_blocks} blocks of {cache.block_size} tokens hold {room} tokens, and one request may have "
            f"max_model_len = {scheduler.max_model_len}: change that one too"
        )
    if scheduler.max_num_batched_tokens < scheduler.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens = {scheduler.max_num_batched_tokens} is less than max_num_seqs = "
            f"{scheduler.max_num_seqs}: so many requests could never advance in one step"
        )
    return config


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _milliseconds(text: str) -> float:
    value = float(text) / 1e3
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


def _switch(text: str) -> bool:
    return {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}[text.lower()]


def _scheduler(name: str) -> Change:
    return lambda config, value: replace(config, scheduler=replace(config.scheduler, **{name: value}))


def _cache(name: str) -> Change:
    return lambda config, value: replace(config, cache=replace(config.cache, **{name: value}))


def _queue(name: str) -> Change:
    return lambda config, value: replace(config, queue=replace(config.queue, **{name: value}))


def _step_tokens(config: EngineConfig, value: int) -> EngineConfig:
    """A number that is stated holds instead of what was timed, unless a latency target needs that."""
    scheduler = config.scheduler
    cost = scheduler.step_cost if scheduler.latency is not None else None
    return replace(config, scheduler=replace(scheduler, max_num_batched_tokens=value, step_cost=cost))


def _block_size(config: EngineConfig, value: int) -> EngineConfig:
    """The memory stays as it is."""
    num_blocks = config.cache.num_blocks * config.cache.block_size // value
    return replace(config, cache=replace(config.cache, block_size=value, num_blocks=num_blocks))


def _latency(name: str) -> Change:
    def change(config: EngineConfig, value: float) -> EngineConfig:
        scheduler = config.scheduler
        if scheduler.step_cost is None:
            raise ConfigError(
                f"{name} needs steps that were timed at start, and these settings state max_num_batched_tokens: "
                "calibrate without stating it"
            )
        target = replace(scheduler.latency or LatencyTarget(), **{name: value})
        return replace(config, scheduler=replace(scheduler, latency=target))

    return change


_CHANGES: Mapping[str, tuple[Callable[[str], Any], Change]] = {
    "max_num_seqs": (_positive, _scheduler("max_num_seqs")),
    "max_num_batched_tokens": (_positive, _step_tokens),
    "max_model_len": (_positive, _scheduler("max_model_len")),
    "admission_policy": (AdmissionPolicy, _scheduler("admission_policy")),
    "scheduling_policy": (SchedulingPolicy, _scheduler("scheduling_policy")),
    "itl_slo_ms": (_milliseconds, _latency("itl_s")),
    "ttft_slo_ms": (_milliseconds, _latency("ttft_s")),
    "block_size": (_positive, _block_size),
    "num_blocks": (_positive, _cache("num_blocks")),
    "enable_prefix_caching": (_switch, _cache("enable_prefix_caching")),
    "max_num_queued_reqs": (_positive, _queue("max_num_queued_reqs")),
    "max_num_queued_tokens": (_positive, _queue("max_num_queued_tokens")),
}
