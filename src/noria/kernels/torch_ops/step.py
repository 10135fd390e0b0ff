"""The ops of kernels.ops, run as they come on one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from noria.kernels.batch import Batch
from noria.kernels.ops import Activation, Attention, EmbeddingSum, Norm, QkvProjection, Reach
from noria.kernels.torch_ops.attention import PagedAttention
from noria.kernels.torch_ops.cache import KvCache
from noria.kernels.torch_ops.chunks import chunk_table
from noria.kernels.torch_ops.linear import LinearWeight, linear
from noria.kernels.torch_ops.pointwise import activated, gated, layer_norm, rms_norm, rotate_
from noria.kernels.torch_ops.safe_rows import SafeRows
from noria.kernels.torch_ops.safe_tiles import SafeTiles
from noria.kernels.torch_ops.scratch import Scratch
from noria.kernels.torch_ops.splitting import split
from noria.kernels.torch_ops.threads import torch_threads
from noria.kernels.torch_ops.tiles import TileGroup, TilePlanner

_ROW_CALL_COST = 12  # rows: what a product costs beside its rows


@dataclass(frozen=True, slots=True)
class Safe:
    """The shapes that keep a row's bits."""

    rows: SafeRows
    tiles: SafeTiles


class TorchOps:
    """Ops bound to one batch. Activations have as many rows as the pieces of a linear: T and then some.

    The rows past T hold numbers, but no token: nothing is written to the cache from them or read by others.
    """

    def __init__(self, batch: Batch, cache: KvCache, safe: Safe, scratch: Scratch) -> None:
        self._batch = batch
        self._cache = cache
        self._safe = safe
        self._scratch = scratch
        self._pieces = split(len(batch.token_ids), safe.rows.counts, _ROW_CALL_COST)
        self._head_pieces = split(len(batch.logit_rows), safe.rows.counts, _ROW_CALL_COST)
        self._num_tokens = len(batch.token_ids)
        self._cache_rows = cache.rows(self._tensor(batch.slots))
        self._positions = self._padded(batch.positions, self._pieces)
        chunks = chunk_table(batch, cache.shape, cache.zero_slot)
        self._planner = TilePlanner(batch, chunks, safe.tiles, self._scratch.device)
        self._groups: dict[tuple[int, Reach], tuple[TileGroup, ...]] = {}  # by window and reach
        self._turns: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by table

    def embed(self, table: LinearWeight, beside: EmbeddingSum | None = None) -> torch.Tensor:
        token_ids = self._padded(self._batch.token_ids, self._pieces)
        x = table.matrix.index_select(0, token_ids).float()
        if beside is None:
            return x
        token_types = self._padded(self._batch.token_types, self._pieces)
        x = (
            x
            + beside.token_types.index_select(0, token_types)
            + beside.positions.index_select(0, self._positions)
        )
        return _normalised(x, beside.norm)

    def norm_qkv(
        self, x: torch.Tensor, norm: Norm | None, projection: QkvProjection, layer: int
    ) -> torch.Tensor:
        heads = projection.heads
        qkv = self._product(_normalised(x, norm), projection.weight)
        by_head = qkv.view(len(qkv), -1, heads.head_dim)
        queries, keys, values = by_head.split((heads.num_heads, heads.num_kv_heads, heads.num_kv_heads), 1)
        for part, head_norm in ((queries, projection.query_norm), (keys, projection.key_norm)):
            if head_norm is not None:
                part.copy_(_normalised(part, head_norm))
        rotate_(by_head[:, : heads.num_heads + heads.num_kv_heads], *self._turn(projection.rope))
        keys, values = keys[: self._num_tokens], values[: self._num_tokens]
        self._cache.write(layer, self._cache_rows, keys, values)
        return qkv[:, : heads.query_size].clone()

    def attend(self, q: torch.Tensor, attention: Attention, layer: int) -> torch.Tensor:
        key = attention.window, attention.reach
        if key not in self._groups:
            self._groups[key] = self._planner.groups(*key, attention.heads.group)
        with torch_threads(self._safe.tiles.num_threads):
            paged = PagedAttention(self._cache, layer, attention, self._scratch)
            return paged.run(q, self._groups[key])

    def linear_add(self, inputs: torch.Tensor, weight: LinearWeight, x: torch.Tensor) -> None:
        x.add_(self._product(inputs, weight))

    def normalise(self, x: torch.Tensor, norm: Norm) -> None:
        x.copy_(_normalised(x, norm))

    def norm_glu(
        self, x: torch.Tensor, norm: Norm | None, weight: LinearWeight, activation: Activation
    ) -> torch.Tensor:
        return gated(self._product(_normalised(x, norm), weight), activation)

    def norm_activate(
        self, x: torch.Tensor, norm: Norm | None, weight: LinearWeight, activation: Activation
    ) -> torch.Tensor:
        return activated(self._product(_normalised(x, norm), weight), activation)

    def lm_head(self, x: torch.Tensor, norm: Norm, weight: LinearWeight) -> torch.Tensor:
        rows = self._padded(self._batch.logit_rows, self._head_pieces)
        logits = torch.empty(len(rows), weight.num_outputs, device=self._scratch.device)
        self._multiply(_normalised(x.index_select(0, rows), norm), weight, self._head_pieces, logits)
        return logits[: len(self._batch.logit_rows)]

    def hidden(self, x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
        rows = x.index_select(0, self._tensor(self._batch.hidden_rows))
        return rows if norm is None else _normalised(rows, norm)

    def _product(self, x: torch.Tensor, weight: LinearWeight) -> torch.Tensor:
        """A linear over all rows; scratch memory, for use within the op."""
        out = self._scratch.take("product", len(x), weight.num_outputs)
        self._multiply(x, weight, self._pieces, out)
        return out

    def _multiply(
        self, x: torch.Tensor, weight: LinearWeight, pieces: tuple[int, ...], out: torch.Tensor
    ) -> None:
        with torch_threads(self._safe.rows.num_threads):
            linear(x, weight, pieces, out, self._scratch)

    def _turn(self, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the batch's positions, [rows, 1, rotary_dim / 2] each."""
        if id(table) not in self._turns:
            cos, sin = table.index_select(0, self._positions)[:, None].chunk(2, -1)
            self._turns[id(table)] = cos, sin
        return self._turns[id(table)]

    def _padded(self, array: np.ndarray, pieces: tuple[int, ...]) -> torch.Tensor:
        return self._tensor(np.pad(array, (0, sum(pieces) - len(array))))

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self._scratch.device)


def _normalised(x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
    if norm is None:
        return x
    if norm.beta is None:
        return rms_norm(x, norm.gamma, norm.eps)
    return layer_norm(x, norm.gamma, norm.eps, norm.beta)
