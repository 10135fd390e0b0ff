"""A made-up workload in one word, as guidellm writes it: prompt_tokens=256,prompt_tokens_stdev=64,..."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from noria.config.benching import WorkloadOptions
from noria.config.errors import ConfigError

_LENGTHS = ("prompt_tokens", "output_tokens")
_ENDLESS = 2**31
_SPREADS = ("stdev", "min", "max")
_KEYS = (*_LENGTHS, *(f"{length}_{spread}" for length in _LENGTHS for spread in _SPREADS))
_OTHERS = {"turns": "turns", "prefix_tokens": "prefix_tokens", "prefix_count": "prefix_groups"}


def read_synthetic(text: str, options: WorkloadOptions) -> WorkloadOptions:
    """`options` with what `text` says over it. Raises ConfigError."""
    given = _pairs(text)
    changes: dict[str, Any] = {
        name: str(given[key]) if name == "turns" else given[key]
        for key, name in _OTHERS.items()
        if key in given
    }
    for length in _LENGTHS:
        if length in given:
            changes[length] = _length(length, given)
    return replace(options, **changes)


def _length(name: str, given: dict[str, int]) -> str:
    low, high = given.get(f"{name}_min"), given.get(f"{name}_max")
    if f"{name}_stdev" in given:
        ends = "" if low is None and high is None else f",{low or 1},{high or _ENDLESS}"
        return f"normal:{given[name]},{given[f'{name}_stdev']}{ends}"
    if low is not None and high is not None:
        return f"{low}-{high}"
    return str(given[name])


def _pairs(text: str) -> dict[str, int]:
    given = {}
    for word in text.split(","):
        key, is_pair, value = word.strip().partition("=")
        if not is_pair or key not in (*_KEYS, *_OTHERS) or not value.isdigit():
            raise ConfigError(
                f"synthetic {text!r}: {word.strip()!r} is none of {', '.join((*_KEYS, *_OTHERS))} = a whole number"
            )
        given[key] = int(value)
    return given
