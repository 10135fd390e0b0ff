"""One candidate: settings of `noria serve` that differ from those that steps were measured with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from noria.capacity.what_if import with_changes
from noria.config.asked import EngineOptions
from noria.config.engine import EngineConfig, LatencyTarget
from noria.config.hardware import probe_cpu
from noria.config.option import as_flag, settings_of

# Stated though a server has them by default: an operating point is read by other versions, too.
_ALWAYS_TOLD = ("max_num_seqs", "block_size", "enable_prefix_caching", "quantization")
_SIZES = ("num_gpu_blocks_override", "kv_cache_memory", "num_threads", "max_model_len")


@dataclass(frozen=True, slots=True)
class Setting:
    """None: as steps were measured with. Names are those of flags. itl_slo_ms stands instead of a fixed
    max_num_batched_tokens."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None
    itl_slo_ms: float | None = None

    def overrides(self) -> dict[str, Any]:
        """What it states, by name."""
        return dict(self._stated())

    def _stated(self) -> Iterator[tuple[str, Any]]:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None:
                yield entry.name, value

    def config(self, measured: EngineConfig) -> EngineConfig:
        """The engine's settings with it, in the same memory. Raises ConfigError where they cannot work together."""
        return with_changes(measured, [f"{name}={value}" for name, value in self._stated()])

    def normal(self, measured: EngineConfig) -> Setting:
        """The same without what is as measured anyway. A number of step tokens that is stated is stated for good."""
        same = {
            "max_num_seqs": measured.scheduler.max_num_seqs,
            "max_model_len": measured.scheduler.max_model_len,
            "block_size": measured.cache.block_size,
            "enable_prefix_caching": measured.cache.enable_prefix_caching,
        }
        changes: dict[str, Any] = {name: None for name, value in same.items() if getattr(self, name) == value}
        return replace(self, **changes)

    def words(self) -> str:
        """In one line, without what is as measured."""
        told = {**_SHORT, "enable_prefix_caching": "prefix cache"}
        parts = [f"{told[name]} {_word(value)}" for name, value in self._stated()]
        return ", ".join(parts) or "as calibrated"


_SHORT = {
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "tokens",
    "max_model_len": "len",
    "block_size": "block",
    "itl_slo_ms": "ITL target",
}


def has_fixed_steps(config: EngineConfig) -> bool:
    """Whether the most tokens of a step are one of its settings, as where users stated them or a latency target beside
    them; else what a step computes follows from the timing of each start.
    """
    return config.scheduler.step_cost is None or config.scheduler.latency is not None


def serve_options(stated: Mapping[str, Any], config: EngineConfig) -> dict[str, Any]:
    """By the names of `noria serve`: all that a server needs to run with these settings, whatever its defaults are.

    stated: options that hold beside them. What both have is as in config.
    """
    settled, usual = _settled(config), _defaults()
    beside = {name: value for name, value in stated.items() if name not in settled}
    found = {
        name: value
        for name, value in settled.items()
        if value is not None and (name in _ALWAYS_TOLD or value != usual[name])
    }
    return {**beside, **found}


def differences(stated: Mapping[str, Any], measured: EngineConfig) -> dict[str, Any]:
    """Of options that are stated, what steps were measured with instead, by name; None: what nobody stated then. Sizes
    are none of them: they may be told in several ways."""
    then = {name: value for name, value in _settled(measured).items() if name not in _SIZES}
    return {name: then[name] for name, value in stated.items() if name in then and value != then[name]}


def _settled(config: EngineConfig) -> dict[str, Any]:
    """Every option that the settings come from, by name; None: not to be stated."""
    scheduler, cache = config.scheduler, config.cache
    latency = scheduler.latency or LatencyTarget()
    return {
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens if has_fixed_steps(config) else None,
        "max_model_len": scheduler.max_model_len,
        "block_size": cache.block_size,
        "num_gpu_blocks_override": cache.num_blocks,
        "kv_cache_memory": None,  # the number of blocks says it
        "enable_prefix_caching": cache.enable_prefix_caching,
        "prefix_cache_isolation": cache.prefix_isolation.value,
        "kv_cache_dtype": cache.dtype,
        "quantization": config.quantization,
        "dtype": config.dtype,
        "num_threads": config.num_threads if config.num_threads != probe_cpu().num_cpus else None,
        "itl_slo_ms": _ms(latency.itl_s),
        "ttft_slo_ms": _ms(latency.ttft_s),
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "admission_policy": scheduler.admission_policy.value,
        "scheduling_policy": scheduler.scheduling_policy.value,
        "priority_aging_s": scheduler.priority_aging_s,
    }


def _defaults() -> dict[str, Any]:
    """As a CPU settles them."""
    return {**{one.name: one.default for one in settings_of(EngineOptions)}, "dtype": "float32"}


def _ms(limit_s: float | None) -> float | None:
    return None if limit_s is None else round(limit_s * 1e3, 6)


def serve_arguments(options: dict[str, Any]) -> list[str]:
    """As flags of a command line."""
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            found.append(as_flag(name) if value else "--no-" + as_flag(name).removeprefix("--"))
        else:
            found += [as_flag(name), f"{value:.12g}" if isinstance(value, float) else str(value)]
    return found


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
