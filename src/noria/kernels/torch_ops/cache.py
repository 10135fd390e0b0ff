"""The paged KV cache: [layers, K and V, kv heads, slots + 1, head_dim].

Slot = block * block_size + offset. The memory is left as it comes, so a slot holds anything until its token is
written; the last slot is no token's and stays zero, for lanes that no query may see.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from noria.kernels.ops import CacheShape
from noria.kernels.torch_ops.scratch import Scratch


class KvCache:
    def __init__(self, shape: CacheShape, dtype: torch.dtype, device: str) -> None:
        self.shape = shape
        self.zero_slot = shape.num_blocks * shape.block_size
        num_slots = self.zero_slot + 1
        size = (shape.num_layers, 2, shape.num_kv_heads, num_slots, shape.head_dim)
        self._kv = torch.empty(size, dtype=dtype, device=device)
        self._kv[:, :, :, self.zero_slot] = 0
        # By layer: keys and values, each [Hkv * slots, D].
        self._flat = [layer.unbind() for layer in self._kv.flatten(2, 3).unbind()]
        self._head_starts = torch.arange(shape.num_kv_heads, device=device)[:, None] * num_slots

    def rows(self, slots: torch.Tensor) -> torch.Tensor:
        """slots: [..., n] -> where their KV lies in each head, [..., Hkv, n]; for `write` and `gather`."""
        return slots.unsqueeze(-2) + self._head_starts

    def write(self, layer: int, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """rows: [Hkv, T]; keys, values: [T, Hkv, D] float32, rounded to the cache's dtype.

        What float16 cannot hold becomes the largest number that it can; what is not finite becomes NaN there.
        """
        for part, new in zip(self._flat[layer], (keys, values), strict=True):
            if part.dtype == torch.float16:
                most = torch.finfo(torch.float16).max
                new = new.clamp(-most, most) + (new - new)
            part.index_copy_(0, rows.flatten(), new.transpose(0, 1).flatten(0, 1).to(part.dtype))

    def gather(self, layer: int, rows: torch.Tensor, scratch: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
        """rows: [n, Hkv, m] -> keys and values [n * Hkv, m, D] float32, scratch memory both."""
        keys, values = self._flat[layer]
        return self._gathered(keys, rows, "keys", scratch), self._gathered(values, rows, "values", scratch)

    def _gathered(self, part: torch.Tensor, rows: torch.Tensor, use: str, scratch: Scratch) -> torch.Tensor:
        width = self.shape.head_dim
        stored = scratch.take(f"stored {use}", rows.numel(), width, dtype=part.dtype)
        torch.index_select(part, 0, rows.flatten(), out=stored)
        if part.dtype != torch.float32:
            stored = scratch.take(use, *stored.shape).copy_(stored)
        return stored.view(-1, rows.shape[-1], width)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        blocks = self._kv[:, :, :, : self.zero_slot].unflatten(3, (-1, self.shape.block_size))
        for source, destination in pairs:
            blocks[:, :, :, destination] = blocks[:, :, :, source]
