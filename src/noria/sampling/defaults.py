"""Sampling values that a model's makers recommend, under what a user states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noria.sampling.params import SamplingParams

# Of a generation_config.json, what says how to choose tokens. (How many is the user's to say.)
RECOMMENDABLE = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def params_over_defaults(stated: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    """What is stated, then what is recommended, then neutral values. Raises RequestError."""
    recommended = {name: defaults[name] for name in RECOMMENDABLE if defaults.get(name) is not None}
    return SamplingParams(**{**recommended, **stated})
