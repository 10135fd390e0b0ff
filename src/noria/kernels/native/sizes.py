"""What packed weights take in memory, without loading the library. A test holds this against what it allocates."""

from __future__ import annotations

from collections.abc import Callable

from noria.kernels.native.formats import GROUP, Formats
from noria.kernels.ops import MatrixRole

_PANEL = 64  # columns: a weight is filled up to whole panels
# Codes, scales and minima of 32 numbers.
_GROUP_BYTES = {
    "w8": 34,
    "w4": 20,
    "Q4_0": 18,
    "Q4_1": 20,
    "Q5_0": 34,
    "Q5_1": 36,
    "Q8_0": 34,
    "Q4_K": 24,
    "Q5_K": 40,
    "Q6_K": 40,
}

MatrixBytes = Callable[[str, tuple[int, int], MatrixRole], int]


def matrix_sizes(formats: Formats) -> MatrixBytes:
    """For models.footprint: (stored kind, [N, K], role) -> bytes."""

    def matrix_bytes(kind: str, shape: tuple[int, int], role: MatrixRole) -> int:
        num_rows, width = shape
        num_rows = -(-num_rows // _PANEL) * _PANEL
        form = formats.of(kind, width, role)
        if form in _GROUP_BYTES:
            return num_rows * (width // GROUP) * _GROUP_BYTES[form]
        return num_rows * width * 4 if form == "float32" else num_rows * -(-width // 2) * 4

    return matrix_bytes
