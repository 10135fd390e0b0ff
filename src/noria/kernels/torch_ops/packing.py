"""Weights as torch tensors: matrices in the serving dtype, vectors and rope tables in float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from noria.kernels.ops import Matrix
from noria.kernels.torch_ops.linear import LinearWeight


class TorchPacker:
    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self._dtype = dtype
        self._device = device

    def pack_linear(
        self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None
    ) -> LinearWeight:
        matrix = torch.empty(shape, dtype=self._dtype, device=self._device)
        filled = 0
        for part in parts:
            rows = part.floats()
            matrix[filled : filled + len(rows)].copy_(torch.from_numpy(rows))
            filled += len(rows)
            del rows  # or they would be held while the next ones are read
        assert filled == shape[0], f"{filled} rows packed of {shape}"
        return LinearWeight(matrix, None if bias is None else self.pack_vector(bias))

    def pack_glu(
        self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None
    ) -> LinearWeight:
        return self.pack_linear(shape, parts, bias)

    def pack_vocabulary(self, table: Matrix) -> LinearWeight:
        return self.pack_linear(table.shape, [table], None)

    def pack_vector(self, vector: np.ndarray) -> torch.Tensor:
        return torch.tensor(vector, dtype=torch.float32, device=self._device)

    def pack_table(self, table: np.ndarray) -> torch.Tensor:
        return torch.tensor(table, dtype=torch.float32, device=self._device)
