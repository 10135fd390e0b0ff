"""Sampling values that a generation_config.json recommends."""

from __future__ import annotations

from typing import Any

from noria.loaders.checkpoint import GenerationDefaults
from noria.loaders.fields import Fields

# key -> name of the sampling parameter
_WHOLE = {"top_k": "top_k", "max_new_tokens": "max_tokens"}
_NUMBERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
}


def generation_defaults(fields: Fields) -> GenerationDefaults:
    """fields: generation_config.json. Only the stated values, by their parameter's name. Raises ModelError."""
    values: dict[str, Any] = {}
    for key, name in _WHOLE.items():
        whole = fields.optional_integer(key, low=-1)
        if whole is not None:
            values[name] = whole
    for key, name in _NUMBERS.items():
        number = fields.optional_number(key, above=None)
        if number is not None:
            values[name] = number
    return GenerationDefaults(values)
