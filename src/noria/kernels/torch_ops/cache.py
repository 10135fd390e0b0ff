"""The paged KV cache: [layers, K and V, kv heads, slots + 1, head_dim].

Slot = block * block_size + offset. The memory is left as it comes, so a slot holds anything until its token is
written; the last slot is no token's and stays zero, for lanes that no query may see.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from noria.kernels.ops import CacheShape


class KvCache:
    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: str) -> None:
        self.shape = shape
        self.zero_slot = shape.num_blocks * shape.block_size
        size = (shape.num_layers, 2, shape.num_kv_heads, self.zero_slot + 1, shape.head_dim)
        self._kv = torch.empty(size, dtype=dtype, device=device)
        self._kv[:, :, :, self.zero_slot] = 0

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """slots: [T]; keys, values: [T, Hkv, D] float32, rounded to the cache's dtype."""
        for part, new in zip(self._kv[layer], (keys, values), strict=True):
            part.index_copy_(1, slots, new.transpose(0, 1).to(part.dtype))

    def gather(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """slots: [n, m] -> keys and values [Hkv * n, m, D] float32."""
        keys, values = (part.index_select(1, slots.flatten()).float() for part in self._kv[layer])
        shape = (-1, slots.shape[1], self.shape.head_dim)
        return keys.view(shape), values.view(shape)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        blocks = self._kv[:, :, :, : self.zero_slot].unflatten(3, (-1, self.shape.block_size))
        for source, destination in pairs:
            blocks[:, :, :, destination] = blocks[:, :, :, source]
