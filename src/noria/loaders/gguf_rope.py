"""Rotary embedding settings from GGUF metadata (keys `{architecture}.rope.*`) and the tensor rope_freqs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import RopeConfig
from noria.loaders.fields import Fields
from noria.loaders.model_checks import rotary_dim_of

FREQUENCIES = "rope_freqs.weight"  # one divisor a pair of dimensions

# Settings that other engines' files may carry and that would change the result if they were ignored.
_NEUTRAL = {
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "rope.scaling.alpha": 0.0,
}


def rope_config(
    fields: Fields, arch: str, head_dim: int, max_position: int, frequencies: Callable[[], np.ndarray] | None
) -> RopeConfig:
    """frequencies: reads the tensor rope_freqs, where the file has one. Raises ModelError."""
    _refuse_unsupported(fields, arch)
    theta = fields.number(f"{arch}.rope.freq_base", 10000.0, above=1.0)
    rotary_dim = rotary_dim_of(fields.integer(f"{arch}.rope.dimension_count", head_dim), head_dim)
    kind, factor = _scaling(fields, arch)
    if frequencies is not None:
        return _with_frequencies(fields, theta, rotary_dim, kind, frequencies())
    if kind == "yarn":
        return _yarn(fields, arch, theta, rotary_dim, factor, max_position)
    if _attention_factor(fields, arch) != 1.0:
        raise fields.fault(f"{arch}.rope.scaling.attn_factor", f"1 with {kind} scaling")
    if kind == "linear":
        return RopeConfig("linear", theta, rotary_dim, factor)
    return RopeConfig("default", theta, rotary_dim)


def _refuse_unsupported(fields: Fields, arch: str) -> None:
    for suffix, neutral in _NEUTRAL.items():
        key = f"{arch}.{suffix}"
        if fields.number(key, neutral, above=None) != neutral:
            raise fields.fault(key, f"{neutral:g}, other values are not supported")


def _scaling(fields: Fields, arch: str) -> tuple[str, float]:
    """(default | linear | yarn, factor). A factor without a type means linear; old files call it scale_linear."""
    key = f"{arch}.rope.scaling.type"
    kind = fields.text(key, "linear")
    if kind not in ("none", "linear", "yarn"):
        raise fields.fault(key, '"none", "linear" or "yarn"')
    old = fields.number(f"{arch}.rope.scale_linear", 1.0)
    factor = fields.number(f"{arch}.rope.scaling.factor", old)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return "default", 1.0
    return kind, factor


def _attention_factor(fields: Fields, arch: str) -> float:
    return fields.number(f"{arch}.rope.scaling.attn_factor", 1.0)


def _yarn(
    fields: Fields, arch: str, theta: float, rotary_dim: int, factor: float, max_position: int
) -> RopeConfig:
    attention = _attention_factor(fields, arch)
    if attention != 1.0:
        # The file's value multiplies the usual scale of cos and sin; RopeConfig's replaces it.
        attention *= 1.0 + 0.1 * math.log(factor) if factor > 1.0 else 1.0
    return RopeConfig(
        "yarn",
        theta,
        rotary_dim,
        factor,
        original_max_position=fields.integer(
            f"{arch}.rope.scaling.original_context_length", max_position, low=2
        ),
        beta_fast=fields.number(f"{arch}.rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number(f"{arch}.rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=None if attention == 1.0 else attention,
    )


def _with_frequencies(
    fields: Fields, theta: float, rotary_dim: int, kind: str, factors: np.ndarray
) -> RopeConfig:
    if kind != "default":
        raise ModelError(
            f"{fields.source}: has the tensor {FREQUENCIES} as well as {kind} rope scaling; "
            f"only one of them is supported"
        )
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ModelError(f"{fields.source}: the tensor {FREQUENCIES} must hold finite numbers above 0")
    return RopeConfig("factors", theta, rotary_dim, frequency_factors=tuple(factors.reshape(-1).tolist()))
