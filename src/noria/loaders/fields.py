"""Typed look-ups in what a model file says of itself, with one wording for everything that can be wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noria.config.errors import ModelError

MAX_INTEGER = 2**31 - 1  # kernels count in 32 bits


def shorten(value: object, limit: int = 60) -> str:
    """The value as a message may show it: hostile files hold very long ones."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


class Fields:
    """Values by key, as read from `source` (a path), which every error names.

    A missing key and a null value are the same thing. The getters return the value, else `default`; without
    a default they raise ModelError. The `optional_` getters return None instead.
    """

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values = values
        self.source = source

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def fault(self, key: str, wanted: str) -> ModelError:
        """The error to raise when the value of `key` is not `wanted`."""
        if self.values.get(key) is None:
            return ModelError(f"{self.source}: {key} is missing; it must be {wanted}")
        return ModelError(f"{self.source}: {key} must be {wanted}, found {shorten(self.values[key])}")

    def optional_integer(self, key: str, low: int = 1, high: int = MAX_INTEGER) -> int | None:
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fault(key, f"a whole number from {low} to {high}")
        return value

    def integer(self, key: str, default: int | None = None, low: int = 1, high: int = MAX_INTEGER) -> int:
        value = self.optional_integer(key, low, high)
        if value is None:
            value = default
        if value is None:
            raise self.fault(key, f"a whole number from {low} to {high}")
        return value

    def optional_number(self, key: str, above: float | None = 0.0) -> float | None:
        """above: the value must be greater than this; None allows any finite number."""
        value = self.values.get(key)
        if value is None:
            return None
        if not is_number(value) or (above is not None and value <= above):
            raise self.fault(key, _number_words(above))
        return float(value)

    def number(self, key: str, default: float | None = None, above: float | None = 0.0) -> float:
        value = self.optional_number(key, above)
        if value is None:
            value = default
        if value is None:
            raise self.fault(key, _number_words(above))
        return value

    def optional_flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.optional_flag(key)
        return default if value is None else value

    def optional_text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.fault(key, "a string")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.optional_text(key)
        if value is None:
            value = default
        if value is None:
            raise self.fault(key, "a string")
        return value

    def optional_table(self, key: str) -> Fields | None:
        """The value as Fields of its own, whose errors name this key too."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fault(key, "an object")
        return Fields(value, f"{self.source}: {key}")


def is_number(value: object) -> bool:
    """A finite number, and no bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # An int may be too big for a float, which math.isfinite does not survive.
    return abs(value) <= 1e300 if isinstance(value, int) else math.isfinite(value)


def _number_words(above: float | None) -> str:
    return "a finite number" if above is None else f"a finite number above {above:g}"
