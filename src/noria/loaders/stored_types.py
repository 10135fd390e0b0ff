"""Numbers out of GGUF's tensor types: vectorised, one rounding where the format's definition has one.

A quantised row is a run of blocks, each with its own scale (`d`, half precision), often a minimum too (`m` or
`dmin`), and packed integers. The K types have 256 numbers to a block, in groups with small integer scales.
The layouts follow ggml's block_* structures, which are little-endian and unpadded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_CHUNK_ELEMENTS = 1 << 18  # a chunk's temporaries stay in the cache

_FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_LAYOUTS = {
    "Q4_0": np.dtype([("d", "<f2"), ("q", "u1", 16)]),
    "Q4_1": np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]),
    "Q5_0": np.dtype([("d", "<f2"), ("high", "u1", 4), ("q", "u1", 16)]),
    "Q5_1": np.dtype([("d", "<f2"), ("m", "<f2"), ("high", "u1", 4), ("q", "u1", 16)]),
    "Q8_0": np.dtype([("d", "<f2"), ("q", "i1", 32)]),
    "Q4_K": np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("q", "u1", 128)]),
    "Q5_K": np.dtype(
        [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("high", "u1", 32), ("q", "u1", 128)]
    ),
    "Q6_K": np.dtype([("q", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]),
}


def unit_of(kind: str) -> tuple[int, int]:
    """(numbers, bytes) of what a row is made of, and cannot be read apart."""
    if kind in _FLOAT_BYTES:
        return 1, _FLOAT_BYTES[kind]
    return 256 if kind.endswith("_K") else 32, _LAYOUTS[kind].itemsize


def dequantise(kind: str, raw: np.ndarray, num_elements: int) -> np.ndarray:
    """raw: the stored bytes [num_bytes] uint8 of a supported type. Returns [num_elements] float32, fresh."""
    if kind == "F32":
        return raw.view("<f4").astype(np.float32)
    if kind == "F16":
        return raw.view("<f2").astype(np.float32)
    if kind == "BF16":
        return widen_bfloat16(raw)
    blocks = raw.view(_LAYOUTS[kind])
    out = np.empty((len(blocks), num_elements // len(blocks)), np.float32)
    step = _CHUNK_ELEMENTS // out.shape[1]
    for start in range(0, len(blocks), step):
        _EXPANDERS[kind](blocks[start : start + step], out[start : start + step])
    return out.reshape(-1)


def widen_bfloat16(raw: np.ndarray) -> np.ndarray:
    """raw: the bytes of bfloat16 numbers, [2 n] uint8. Returns [n] float32: the same bits, 16 zeros below."""
    bits = raw.view("<u2").astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def _column(halves: np.ndarray) -> np.ndarray:
    """[n] half -> [n, 1] float32."""
    return halves.astype(np.float32)[:, None]


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """[..., b] bytes -> [..., 2 b] uint8: the low nibbles of all bytes, then the high ones."""
    width = packed.shape[-1]
    out = np.empty((*packed.shape[:-1], 2 * width), np.uint8)
    np.bitwise_and(packed, 0x0F, out=out[..., :width])
    np.right_shift(packed, 4, out=out[..., width:])
    return out


def _five_bits(blocks: np.ndarray) -> np.ndarray:
    """Q5_0 and Q5_1: bit i of `high` is the fifth bit of number i. [n, 32] uint8."""
    high = np.unpackbits(blocks["high"], axis=1, bitorder="little")
    high <<= 4
    high |= _nibbles(blocks["q"])
    return high


def _expand_q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    signed = _nibbles(blocks["q"]).view(np.int8)
    signed -= 8
    np.multiply(_column(blocks["d"]), signed, out=out)


def _expand_q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(_column(blocks["d"]), _nibbles(blocks["q"]), out=out)
    out += _column(blocks["m"])


def _expand_q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    signed = _five_bits(blocks).view(np.int8)
    signed -= 16
    np.multiply(_column(blocks["d"]), signed, out=out)


def _expand_q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(_column(blocks["d"]), _five_bits(blocks), out=out)
    out += _column(blocks["m"])


def _expand_q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(blocks["q"], _column(blocks["d"]), out=out)


def _group_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q4_K and Q5_K: 12 bytes hold 8 scales and 8 minima of 6 bits. Returns two [n, 8] uint8.

    # bytes 0-3: scales 0-3, and above them the top 2 bits of scales 4-7
    # bytes 4-7: minima 0-3, and above them the top 2 bits of minima 4-7
    # bytes 8-11: the low 4 bits of scales 4-7, and above them those of minima 4-7
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)], axis=1)
    minima = np.concatenate([second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)], axis=1)
    return scales, minima


def _scale_groups(blocks: np.ndarray, numbers: np.ndarray, out: np.ndarray) -> None:
    """Q4_K and Q5_K: numbers [n, 8, 32] are scaled and shifted by group."""
    scales, minima = _group_scales(blocks["scales"])
    d = _column(blocks["d"]) * scales
    dmin = _column(blocks["dmin"]) * minima
    groups = out.reshape(numbers.shape)
    np.multiply(d[:, :, None], numbers, out=groups)
    groups -= dmin[:, :, None]


def _expand_q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    # 32 bytes hold two groups: one in the low nibbles, the next in the high ones.
    numbers = _nibbles(blocks["q"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    _scale_groups(blocks, numbers, out)


def _expand_q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    numbers = _nibbles(blocks["q"].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    # Bit g of byte i is the fifth bit of number i of group g.
    shifts = np.arange(8, dtype=np.uint8)[None, :, None]
    high = (blocks["high"][:, None, :] >> shifts) & 1
    high <<= 4
    high |= numbers
    _scale_groups(blocks, high, out)


def _expand_q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    # Half a block is 128 numbers: 64 bytes of low nibbles, then of high ones, and 32 bytes whose four bit
    # pairs are the top bits of numbers 0-31, 32-63, 64-95 and 96-127.
    low = _nibbles(blocks["q"].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[None, None, :, None]
    high = (blocks["high"].reshape(-1, 2, 1, 32) >> shifts) & 3
    high <<= 4
    high |= low
    signed = high.view(np.int8).reshape(-1, 16, 16)
    signed -= 32
    d = _column(blocks["d"]) * blocks["scales"]
    np.multiply(d[:, :, None], signed, out=out.reshape(signed.shape))


_EXPANDERS: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "Q4_0": _expand_q4_0,
    "Q4_1": _expand_q4_1,
    "Q5_0": _expand_q5_0,
    "Q5_1": _expand_q5_1,
    "Q8_0": _expand_q8_0,
    "Q4_K": _expand_q4_k,
    "Q5_K": _expand_q5_k,
    "Q6_K": _expand_q6_k,
}
