"""Causal attention over the paged cache, chunk by chunk with a running maximum.

For a token, its scores against a whole chunk are computed, hidden lanes set to minus infinity, and the chunk's
share merged into the running (peak, total, mixed value). A chunk with no lane to see changes none of them, not by
a bit, so a token does not notice which chunks its tile reads.
"""

from __future__ import annotations

import torch

from noria.kernels.ops import Heads
from noria.kernels.torch_ops.cache import KvCache
from noria.kernels.torch_ops.products import CHUNK, scores, weighted
from noria.kernels.torch_ops.tiles import Pass, TileGroup

_LOWEST = -1e30  # below any score, and finite: exp(-inf - _LOWEST) is 0 where exp(-inf + inf) is not a number


class PagedAttention:
    """The attention of one layer in one step. heads and scale as in ops.Attention."""

    def __init__(self, cache: KvCache, layer: int, heads: Heads, scale: float) -> None:
        self._cache = cache
        self._layer = layer
        self._heads = heads
        self._scale = scale

    def run(self, q: torch.Tensor, groups: tuple[TileGroup, ...]) -> torch.Tensor:
        """q: [rows, Hq * D] float32 -> the same shape; rows in no tile are zero."""
        out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
        for group in groups:
            out.index_copy_(0, group.rows, self._attend(q.index_select(0, group.rows), group))
        return out

    def _attend(self, q: torch.Tensor, group: TileGroup) -> torch.Tensor:
        heads, num_tiles = self._heads, len(group.rows) // group.size
        split_heads = (num_tiles, group.size, heads.num_kv_heads, heads.group, heads.head_dim)
        queries = (q * self._scale).view(split_heads).permute(2, 0, 1, 3, 4).flatten(2, 3).contiguous()
        running = _Running(queries)
        for one in group.passes:
            keys, values = self._cache.gather(self._layer, one.slots)
            found = scores(queries.index_select(1, one.tiles).flatten(0, 1), keys)
            self._hide(found, one, group.size)
            running.merge(one.tiles, found.view(heads.num_kv_heads, len(one.tiles), -1, CHUNK), values)
        mixed = running.result().view(heads.num_kv_heads, num_tiles, group.size, heads.group, -1)
        return mixed.permute(1, 2, 0, 3, 4).reshape(q.shape)

    def _hide(self, found: torch.Tensor, one: Pass, size: int) -> None:
        """found: [Hkv * n, size * group, CHUNK]"""
        if one.last is None and one.first is None:
            return
        lanes = torch.arange(CHUNK, device=found.device)
        hidden = torch.zeros(len(one.tiles), size, CHUNK, dtype=torch.bool, device=found.device)
        if one.last is not None:
            hidden |= lanes > one.last[:, :, None]
        if one.first is not None:
            hidden |= lanes < one.first[:, :, None]
        by_token = found.view(self._heads.num_kv_heads, len(one.tiles), size, self._heads.group, CHUNK)
        by_token.masked_fill_(hidden[:, :, None, :], float("-inf"))


class _Running:
    """Per head and row: highest score so far, sum of exp(score - peak), and the values so weighted."""

    def __init__(self, queries: torch.Tensor) -> None:
        """queries: [Hkv, tiles, rows, D]"""
        self._peak = torch.full((*queries.shape[:3], 1), _LOWEST, device=queries.device)
        self._total = torch.zeros_like(self._peak)
        self._mixed = torch.zeros_like(queries)

    def merge(self, tiles: torch.Tensor, found: torch.Tensor, values: torch.Tensor) -> None:
        """found: [Hkv, n, rows, CHUNK] scores of `tiles`, overwritten. values: [Hkv * n, CHUNK, D]."""
        before = self._peak.index_select(1, tiles)
        peak = torch.maximum(before, found.amax(-1, keepdim=True))
        weights = found.sub_(peak).exp_()
        kept = torch.exp(before - peak)
        total = self._total.index_select(1, tiles) * kept + weights.sum(-1, keepdim=True)
        share = weighted(weights.flatten(0, 1), values).view(*weights.shape[:3], -1)
        mixed = self._mixed.index_select(1, tiles) * kept + share
        self._peak.index_copy_(1, tiles, peak)
        self._total.index_copy_(1, tiles, total)
        self._mixed.index_copy_(1, tiles, mixed)

    def result(self) -> torch.Tensor:
        return self._mixed / self._total
