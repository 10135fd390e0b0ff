"""Rotary position embedding: which angle each pair of dimensions turns by, per position.

Dimension i of the turning part goes with dimension i + rotary_dim / 2. The scaling kinds follow their papers and
the reference implementation in transformers (modeling_rope_utils): linear (position interpolation), dynamic
(NTK-aware), yarn (arXiv 2309.00071), longrope (arXiv 2402.13753), llama3 (Llama 3.1), and plain per-frequency
factors as GGUF files hold them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import ModelConfig, RopeConfig


def rotary_dim(config: ModelConfig) -> int:
    """How many leading dimensions of a head turn. ModelError unless even and within the head."""
    if config.rope.kind == "none":
        return 0
    dim = config.rope.rotary_dim or config.head_dim
    if dim % 2 or not 0 < dim <= config.head_dim:
        raise ModelError(
            f"rotary_dim is {dim}; it must be even and at most head_dim, which is {config.head_dim}"
        )
    return dim


def max_usable_position(config: ModelConfig) -> int:
    """The longest sequence, in tokens, whose angles are exact.

    `dynamic` scaling changes the angles of all earlier tokens as a sequence outgrows the original length. A KV
    cache keeps keys already rotated, so such a model is served up to its original length, where no scaling
    applies; every other kind is exact up to max_position.
    """
    if config.rope.kind == "dynamic":
        return min(config.max_position, config.rope.original_max_position or config.max_position)
    return config.max_position


def rope_table(config: ModelConfig, max_model_len: int) -> np.ndarray:
    """[max_model_len, rotary_dim] float32: cosines of the angles of each position, then their sines.

    ModelError when `dynamic` scaling would have to be exact beyond `max_usable_position`.
    """
    if config.rope.kind == "dynamic" and max_model_len > max_usable_position(config):
        raise ModelError(
            f"dynamic rope scaling is exact up to the original length of {max_usable_position(config)} tokens; "
            f"max_model_len is {max_model_len}"
        )
    frequencies, scale = rope_frequencies(config, max_model_len)
    # The angle is rounded to float32 on purpose: models were trained with it.
    angles = np.arange(max_model_len, dtype=np.float32)[:, None] * frequencies[None, :]
    exact = angles.astype(np.float64)
    return np.concatenate([np.cos(exact) * scale, np.sin(exact) * scale], axis=1).astype(np.float32)


def rope_frequencies(config: ModelConfig, max_model_len: int) -> tuple[np.ndarray, float]:
    """Radians per position [rotary_dim / 2] float32, and the factor on cosines and sines."""
    kinds: dict[str, Callable[[], tuple[np.ndarray, float]]] = {
        "none": lambda: (base, 1.0),  # of no dimensions
        "default": lambda: (base, 1.0),
        "linear": lambda: (base / rope.factor, 1.0),
        "dynamic": lambda: (base, 1.0),
        "yarn": lambda: _yarn(rope, base, _original(config)),
        "longrope": lambda: _longrope(rope, base, _original(config), max_model_len),
        "llama3": lambda: (_llama3(rope, base, _original(config)), 1.0),
        "factors": lambda: (_divided(base, rope.frequency_factors, "frequency_factors"), 1.0),
    }
    rope = config.rope
    if rope.kind not in kinds:
        raise ModelError(
            f"rope scaling {rope.kind!r} is not supported; supported: {', '.join(sorted(kinds))}"
        )
    dim = rotary_dim(config)
    base = rope.theta ** -(np.arange(0, dim, 2, dtype=np.float64) / max(dim, 1))
    frequencies, scale = kinds[rope.kind]()
    return frequencies.astype(np.float32), scale


def _original(config: ModelConfig) -> int:
    return config.rope.original_max_position or config.max_position


def _divided(base: np.ndarray, factors: tuple[float, ...], field: str) -> np.ndarray:
    if len(factors) != len(base):
        raise ModelError(f"rope field {field} holds {len(factors)} numbers, expected {len(base)}")
    return base / np.asarray(factors, dtype=np.float64)


def _llama3(rope: RopeConfig, base: np.ndarray, original: int) -> np.ndarray:
    """Long waves are stretched by `factor`, short ones kept, those between blended by their turns per context."""
    turns = original * base / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = np.clip(blend, 0.0, 1.0)
    return base * kept + base / rope.factor * (1.0 - kept)


def _longrope(
    rope: RopeConfig, base: np.ndarray, original: int, max_model_len: int
) -> tuple[np.ndarray, float]:
    """One set of factors for all positions, chosen by the length served, so that cached keys stay valid."""
    if max_model_len > original:
        frequencies = _divided(base, rope.long_factor, "long_factor")
    else:
        frequencies = _divided(base, rope.short_factor, "short_factor")
    if rope.attention_factor is not None:
        return frequencies, rope.attention_factor
    if rope.factor <= 1.0:
        return frequencies, 1.0
    return frequencies, math.sqrt(1.0 + math.log(rope.factor) / math.log(original))


def _yarn(rope: RopeConfig, base: np.ndarray, original: int) -> tuple[np.ndarray, float]:
    """Interpolate slow dimensions, keep fast ones, ramp between the two correction dimensions."""
    half = len(base)
    low, high = (
        _yarn_dimension(rope, turns, 2 * half, original) for turns in (rope.beta_fast, rope.beta_slow)
    )
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * half - 1)
    if low == high:
        high += 0.001  # the ramp is a step
    interpolated = np.clip((np.arange(half) - low) / (high - low), 0.0, 1.0)
    frequencies = base / rope.factor * interpolated + base * (1.0 - interpolated)
    return frequencies, _yarn_scale(rope)


def _yarn_dimension(rope: RopeConfig, turns: float, dim: int, original: int) -> float:
    """The (fractional) dimension whose wave turns `turns` times within the original context."""
    return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def _yarn_scale(rope: RopeConfig) -> float:
    def scale(mscale: float) -> float:
        return 1.0 if rope.factor <= 1.0 else 0.1 * mscale * math.log(rope.factor) + 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)
