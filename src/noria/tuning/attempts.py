"""Reads which values shall be tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from noria.config.asked import MemoryOptions, SchedulerOptions
from noria.config.errors import ConfigError
from noria.config.option import settings_of
from noria.tuning.space import Space

_FIELDS = {
    "max_num_seqs": "num_seqs",
    "max_num_batched_tokens": "step_tokens",
    "block_size": "block_sizes",
    "enable_prefix_caching": "prefix_caching",
}


def with_attempts(space: Space, texts: Sequence[str]) -> Space:
    """texts: as in max_num_seqs=16,32. Raises ConfigError."""
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if name not in _FIELDS:
            raise ConfigError(f"try {text!r}: {name!r} is not searched over; these are: {', '.join(_FIELDS)}")
        read = _reader(name, text)
        change: dict[str, Any] = {_FIELDS[name]: tuple(sorted({read(value) for value in values.split(",")}))}
        space = replace(space, **change)
    return space


def _reader(name: str, text: str) -> Callable[[str], Any]:
    """As the option of `noria serve` reads it."""
    known = {one.name: one for group in (MemoryOptions, SchedulerOptions) for one in settings_of(group)}
    return lambda value: known[name].read(value.strip(), f"try {text}")
