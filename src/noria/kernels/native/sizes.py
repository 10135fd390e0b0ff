"""What packed weights take in memory, without loading the library. A test holds this against what it allocates."""

from __future__ import annotations

from collections.abc import Callable

_PANEL = 64  # columns: a weight is filled up to whole panels
_FLOAT_BYTES = {"float32": 4, "bfloat16": 2}
# Codes, scales and minima of 32 numbers.
_GROUP_BYTES = {
    "Q4_0": 18,
    "Q4_1": 20,
    "Q5_0": 34,
    "Q5_1": 36,
    "Q8_0": 34,
    "Q4_K": 24,
    "Q5_K": 40,
    "Q6_K": 40,
}


def matrix_sizes(dtype: str) -> Callable[[str, tuple[int, int]], int]:
    """For models.footprint: (stored kind, [N, K]) -> bytes, where what is not quantised is stored in dtype."""
    item_bytes = _FLOAT_BYTES[dtype]

    def matrix_bytes(kind: str, shape: tuple[int, int]) -> int:
        num_rows, width = shape
        num_rows = -(-num_rows // _PANEL) * _PANEL
        if kind in _GROUP_BYTES:
            return num_rows * (width // 32) * _GROUP_BYTES[kind]
        return num_rows * width * item_bytes if item_bytes == 4 else num_rows * -(-width // 2) * 4

    return matrix_bytes
