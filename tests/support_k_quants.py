"""Quantises to the K types of GGUF, which the reference package can only read. For tests: near enough, not the best."""

from __future__ import annotations

import numpy as np

SIZE = 256  # numbers in a block
# What converters store rows as whose length no block divides.
FALLBACKS = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}


def quantise_k(kind: str, values: np.ndarray) -> np.ndarray:
    """float32 [n, k] as blocks, uint8 [n, bytes of a row]. k is a multiple of SIZE."""
    blocks = _ENCODERS[kind](values.reshape(-1, SIZE))
    return blocks.reshape(len(values), -1)


def _q4_k(values: np.ndarray) -> np.ndarray:
    """Half d, half dmin, 8 scales and 8 minima of 6 bits, 256 codes of 4: value = d * scale * code - dmin * minimum."""
    parts = values.reshape(-1, 8, 32)
    minima = np.maximum(0, -parts.min(axis=2))
    scales = (parts.max(axis=2) + minima) / 15
    d, scale_codes = _six_bits(scales)
    dmin, minimum_codes = _six_bits(minima)
    steps = (d * scale_codes)[:, :, None]
    codes = np.rint((parts + (dmin * minimum_codes)[:, :, None]) / np.where(steps == 0, 1, steps))
    codes = np.clip(codes, 0, 15).astype(np.uint8)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    return np.hstack(
        [_half(d), _half(dmin), _packed_scales(scale_codes, minimum_codes), packed.reshape(-1, 128)]
    )


def _six_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of [n, 8] at least 0: a factor [n, 1] that half precision holds, and codes uint8 of 6 bits."""
    factor = (values.max(axis=1, keepdims=True) / 63).astype(np.float16).astype(np.float32)
    codes = np.rint(values / np.where(factor == 0, 1, factor))
    return factor, np.clip(codes, 0, 63).astype(np.uint8)


def _packed_scales(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """The first four of each have a byte, whose upper bits are those of the last four."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    third = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    return np.hstack([first, second, third])


def _q6_k(values: np.ndarray) -> np.ndarray:
    """256 codes of 6 bits, 4 of them and 2 apart, 16 scales of 8 bits, half d: value = d * scale * (code - 32)."""
    parts = values.reshape(-1, 16, 16)
    scales = np.abs(parts).max(axis=2) / 31
    d = (scales.max(axis=1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    scale_codes = np.rint(scales / np.where(d == 0, 1, d)).astype(np.int8)
    steps = (d * scale_codes)[:, :, None]
    codes = np.clip(np.rint(parts / np.where(steps == 0, 1, steps)), -32, 31) + 32
    codes = codes.astype(np.uint8).reshape(-1, 2, 4, 32)  # halves, and in each four runs of 32
    low, high = codes & 15, codes >> 4
    ql = low[:, :, :2] | low[:, :, 2:] << 4
    qh = high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6
    return np.hstack([ql.reshape(-1, 128), qh.reshape(-1, 64), scale_codes.view(np.uint8), _half(d)])


def _half(values: np.ndarray) -> np.ndarray:
    return values.astype("<f2").view(np.uint8).reshape(len(values), 2)


_ENCODERS = {"Q4_K": _q4_k, "Q6_K": _q6_k}
