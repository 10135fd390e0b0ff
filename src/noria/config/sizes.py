"""Sizes and lengths as people write them: `512MiB`, `1.5GB`, `8k`."""

from __future__ import annotations

import re
from fractions import Fraction

_NUMBER_AND_SUFFIX = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_LETTERS = "kmgt"

# One letter alone follows vLLM's flags: small is decimal (8k = 8000), capital is binary (8K = 8192).
_COUNTS = {letter: 1000**power for power, letter in enumerate(_LETTERS, 1)}
_COUNTS |= {letter.upper(): 1024**power for power, letter in enumerate(_LETTERS, 1)}
_BYTES = {f"{letter}b": 1000**power for power, letter in enumerate(_LETTERS, 1)}
_BYTES |= {f"{letter}ib": 1024**power for power, letter in enumerate(_LETTERS, 1)}
_BYTES |= {"b": 1}

_BINARY_UNITS = ("KiB", "MiB", "GiB", "TiB")


def parse_count(text: str) -> int:
    """A whole number with an optional suffix: 8192, 8k (8000), 8K (8192), 1.5k. Raises ValueError."""
    return _scale(text, _COUNTS)


def parse_size(text: str) -> int:
    """Bytes: 1073741824, 512MiB, 1.5GB (in any case), or one letter as in `parse_count`. Raises ValueError."""
    match = _NUMBER_AND_SUFFIX.fullmatch(text)
    if match and match[2].lower() in _BYTES:
        # A fraction of a byte is dropped: 1.1KiB is a size that nobody means to the byte.
        return int(Fraction(match[1]) * _BYTES[match[2].lower()])
    return _scale(text, _COUNTS)


def _scale(text: str, units: dict[str, int]) -> int:
    match = _NUMBER_AND_SUFFIX.fullmatch(text)
    if match is None or (match[2] and match[2] not in units):
        raise ValueError(text)
    value = Fraction(match[1]) * units.get(match[2], 1)
    if value.denominator != 1:
        raise ValueError(text)
    return int(value)


def format_size(num_bytes: int) -> str:
    """For people: `270.5 MiB`. At most one decimal, rounded to nearest."""
    if abs(num_bytes) < 1024:
        return f"{num_bytes} bytes"
    power = 1
    # 1023.95 would be rounded to 1024.0 of its unit: the next one says it better.
    while power < len(_BINARY_UNITS) and abs(num_bytes) / 1024**power >= 1023.95:
        power += 1
    return f"{num_bytes / 1024**power:.1f}".removesuffix(".0") + f" {_BINARY_UNITS[power - 1]}"


def flag_size(num_bytes: int) -> str:
    """For a flag: the smallest whole number of MiB (below 1 MiB: KiB) that holds `num_bytes`."""
    unit, suffix = (2**20, "MiB") if num_bytes >= 2**20 else (2**10, "KiB")
    return f"{-(-num_bytes // unit)}{suffix}"


def flag_size_below(num_bytes: int) -> str:
    """For a flag: the largest whole number of MiB (below 1 MiB: KiB) within `num_bytes`."""
    unit, suffix = (2**20, "MiB") if num_bytes >= 2**20 else (2**10, "KiB")
    return f"{num_bytes // unit}{suffix}"
