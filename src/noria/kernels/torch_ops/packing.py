"""Weights as torch tensors: matrices in the serving dtype, vectors and rope tables in float32."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from noria.kernels.torch_ops.linear import LinearWeight


class TorchPacker:
    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self._dtype = dtype
        self._device = device

    def pack_linear(
        self, shape: tuple[int, int], parts: Iterable[np.ndarray], bias: np.ndarray | None
    ) -> LinearWeight:
        matrix = torch.empty(shape, dtype=self._dtype, device=self._device)
        filled = 0
        for part in parts:
            matrix[filled : filled + len(part)].copy_(torch.from_numpy(part))
            filled += len(part)
        assert filled == shape[0], f"{filled} rows packed of {shape}"
        return LinearWeight(matrix, None if bias is None else self.pack_vector(bias))

    def pack_glu(
        self, shape: tuple[int, int], parts: Iterable[np.ndarray], bias: np.ndarray | None
    ) -> LinearWeight:
        return self.pack_linear(shape, parts, bias)

    def pack_embedding(self, table: np.ndarray) -> LinearWeight:
        return self.pack_linear(table.shape, [table], None)

    def pack_vector(self, vector: np.ndarray) -> torch.Tensor:
        return torch.tensor(vector, dtype=torch.float32, device=self._device)

    def pack_rope(self, table: np.ndarray) -> torch.Tensor:
        return torch.tensor(table, dtype=torch.float32, device=self._device)
