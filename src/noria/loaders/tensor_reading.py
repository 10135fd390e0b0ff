"""A stored tensor as float32, without ever holding all of its bytes beside it."""

from __future__ import annotations

import numpy as np

from noria.config.errors import ModelError
from noria.loaders.checkpoint import TensorInfo
from noria.loaders.model_bytes import ModelBytes
from noria.loaders.stored_types import dequantise, unit_of

_PIECE_BYTES = 4 << 20


def read_floats(file: ModelBytes, offset: int, info: TensorInfo) -> np.ndarray:
    """The tensor at `offset` of the file, dequantised, in its row-major shape. A fresh array. Raises ModelError."""
    if info.kind == "I64":
        raise ModelError(f"{file.path}: tensor {info.name} holds whole numbers (I64) where weights belong")
    numbers, num_bytes = unit_of(info.kind)
    floats = np.empty(info.num_elements, np.float32)
    units = len(floats) // numbers
    step = max(1, _PIECE_BYTES // num_bytes)
    for first in range(0, units, step):
        end = min(first + step, units)
        raw = file.read(offset + first * num_bytes, (end - first) * num_bytes)
        piece = floats[first * numbers : end * numbers]
        piece[:] = dequantise(info.kind, raw, len(piece))
    return floats.reshape(info.shape)
