"""One candidate: settings of `noria serve` that differ from those that steps were measured with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from noria.capacity.what_if import with_changes
from noria.config.engine import EngineConfig
from noria.config.option import as_flag


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


def serve_options(setting: Setting, config: EngineConfig) -> dict[str, Any]:
    """By the names of `noria serve`: what was chosen, and the number of blocks that it was chosen with."""
    return {**setting.overrides(), "num_gpu_blocks_override": config.cache.num_blocks}


def serve_arguments(options: dict[str, Any]) -> list[str]:
    """As flags of a command line."""
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, bool):
            found.append(as_flag(name) if value else "--no-" + as_flag(name).removeprefix("--"))
        else:
            found += [as_flag(name), _word(value)]
    return found


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
