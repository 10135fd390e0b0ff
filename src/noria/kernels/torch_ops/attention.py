"""Attention over the paged cache, chunk by chunk with a running maximum.

For a token, its scores against a whole chunk are computed, hidden lanes set to minus infinity, and the chunk's
share merged into the running (peak, total, mixed value). A chunk with no lane to see changes none of them, not by
a bit, so a token does not notice which chunks its tile reads.
"""

from __future__ import annotations

import torch

from noria.kernels.ops import Attention
from noria.kernels.torch_ops.cache import KvCache
from noria.kernels.torch_ops.products import CHUNK, scores, weighted
from noria.kernels.torch_ops.scratch import Scratch
from noria.kernels.torch_ops.tiles import Pass, TileGroup

_LOWEST = -1e30  # below any score, and finite: exp(-inf - _LOWEST) is 0 where exp(-inf + inf) is not a number


class PagedAttention:
    """The attention of one layer in one step."""

    def __init__(self, cache: KvCache, layer: int, attention: Attention, scratch: Scratch) -> None:
        self._cache = cache
        self._layer = layer
        self._heads = attention.heads
        self._scale = attention.scale
        self._scratch = scratch

    def run(self, q: torch.Tensor, groups: tuple[TileGroup, ...]) -> torch.Tensor:
        """q: [rows, Hq * D] float32 -> the same shape; rows in no tile are zero."""
        out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
        for group in groups:
            tokens = group.tokens.flatten()
            out.index_copy_(0, tokens, self._attend(q.index_select(0, tokens), group))
        return out

    def _attend(self, q: torch.Tensor, group: TileGroup) -> torch.Tensor:
        """q: [tiles * size, Hq * D], token after token of each tile -> the same"""
        heads, (num_tiles, size) = self._heads, group.tokens.shape
        queries = (q * self._scale).view(num_tiles, size, heads.num_kv_heads, heads.group, heads.head_dim)
        queries = queries.transpose(1, 2).flatten(2, 3)
        used = queries.shape[2]
        queries = torch.nn.functional.pad(queries, (0, 0, 0, group.num_rows - used))
        running = _Running(queries)
        for one in group.passes:
            keys, values = self._cache.gather(self._layer, self._cache.rows(one.slots), self._scratch)
            chosen = queries.index_select(0, one.tiles)
            found = self._scratch.take("scores", *chosen.shape[:3], CHUNK)
            scores(chosen.flatten(0, 1), keys, found.flatten(0, 1))
            _hide(found, one)
            running.merge(one.tiles, found, values)
        mixed = running.result()[:, :, :used].unflatten(2, (size, heads.group))
        return mixed.transpose(1, 2).reshape(q.shape)


def _hide(found: torch.Tensor, one: Pass) -> None:
    """found: [n, Hkv, M, CHUNK]"""
    lanes = torch.arange(CHUNK, device=found.device)
    if one.last is not None:
        found.masked_fill_((lanes > one.last)[:, None], float("-inf"))
    if one.first is not None:
        found.masked_fill_((lanes < one.first)[:, None], float("-inf"))


def _mixed(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """As products.weighted, but a lane of weight 0 adds nothing, even where its value is no number.

    A chunk holds what follows a token, too. What the token becomes must not depend on it: others that begin alike
    will find its keys and values in the cache.
    """
    share = weighted(weights, values)
    if share.isfinite().all():
        return share
    is_odd = ~values.isfinite()
    share = weighted(weights, values.masked_fill(is_odd, 0.0))
    takes_odd = weighted((weights != 0).float(), is_odd.float()) > 0
    return share.masked_fill(takes_odd, float("nan"))


class _Running:
    """Per head and row: highest score so far, sum of exp(score - peak), and the values so weighted."""

    def __init__(self, queries: torch.Tensor) -> None:
        """queries: [tiles, Hkv, M, D]"""
        self._peak = torch.full((*queries.shape[:3], 1), _LOWEST, device=queries.device)
        self._total = torch.zeros_like(self._peak)
        self._mixed = torch.zeros_like(queries)

    def merge(self, tiles: torch.Tensor, found: torch.Tensor, values: torch.Tensor) -> None:
        """found: [n, Hkv, M, CHUNK] scores of `tiles`, overwritten. values: [n * Hkv, CHUNK, D]."""
        before = self._peak.index_select(0, tiles)
        peak = torch.maximum(before, found.amax(-1, keepdim=True))
        weights = found.sub_(peak).exp_()
        kept = torch.exp(before - peak)
        total = self._total.index_select(0, tiles) * kept + weights.sum(-1, keepdim=True)
        share = _mixed(weights.flatten(0, 1), values).view(*weights.shape[:3], -1)
        mixed = self._mixed.index_select(0, tiles) * kept + share
        self._peak.index_copy_(0, tiles, peak)
        self._total.index_copy_(0, tiles, total)
        self._mixed.index_copy_(0, tiles, mixed)

    def result(self) -> torch.Tensor:
        return self._mixed / self._total
