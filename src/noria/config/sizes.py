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
    """For people: `1.46 GiB`, `270 MiB`. Three digits, rounded to nearest; all of them for a few bytes."""
    if abs(num_bytes) < 1024:
        return f"{num_bytes} bytes"
    power = 1
    # From 999.5 on a fourth digit would be needed: the next unit says it with three.
    while power < len(_BINARY_UNITS) and abs(num_bytes) / 1024**power >= 999.5:
        power += 1
    value = num_bytes / 1024**power
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    digits = f"{value:.{decimals}f}"
    return f"{digits.rstrip('0').rstrip('.') if decimals else digits} {_BINARY_UNITS[power - 1]}"


def flag_size(num_bytes: int) -> str:
    """For a flag: the smallest whole number of MiB (below 1 MiB: KiB) that holds `num_bytes`."""
    unit, suffix = (2**20, "MiB") if num_bytes >= 2**20 else (2**10, "KiB")
    return f"{-(-num_bytes // unit)}{suffix}"


def flag_size_below(num_bytes: int) -> str:
    """For a flag: the largest whole number of MiB (below 1 MiB: KiB) within `num_bytes`."""
    unit, suffix = (2**20, "MiB") if num_bytes >= 2**20 else (2**10, "KiB")
    return f"{num_bytes // unit}{suffix}"
