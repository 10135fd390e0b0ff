"""Which attention tiles give a token the same bits whatever stands beside it; the trial of safe_rows.py, for
attention's two products.

A tile is some tokens of one sequence, next to each other; in each key/value head it has a row for each token and
query head of the group. Several tiles go through one batched product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from noria.kernels.torch_ops.products import CHUNK, scores, weighted
from noria.kernels.torch_ops.safe_rows import mixed_numbers
from noria.kernels.torch_ops.threads import torch_threads

_SIZES = (1, 4, 16, 64)  # tokens
_COUNTS = (1, 4, 16)  # tiles
_BASES = (16, 4, 1)


@dataclass(frozen=True, slots=True)
class SafeTiles:
    """Tiles that agree bit for bit when computed with num_threads.

    sizes: tokens of a tile, ascending. counts: per size, how many tiles may be computed at once, ascending.
    """

    sizes: tuple[int, ...]
    counts: dict[int, tuple[int, ...]]
    num_threads: int


@lru_cache(maxsize=64)
def safe_tiles(num_kv_heads: int, group: int, head_dim: int, max_bytes: int, num_threads: int) -> SafeTiles:
    """group: query heads per key/value head. max_bytes: what the tiles computed at once may take."""
    trial = _Trial(num_kv_heads, group, head_dim)
    for base in _BASES:
        if not trial.is_blind_to_place(base):
            continue
        for threads in (num_threads, 1):
            counts = {}
            for size in _SIZES:
                most = max(1, max_bytes // trial.num_bytes(size))
                agreeing = trial.agreeing(size, tuple(n for n in _COUNTS if n <= most), base, threads)
                if agreeing:
                    counts[size] = agreeing
            if counts:
                return SafeTiles(tuple(counts), counts, threads)
    raise AssertionError("a tile of one token computed by one thread differs from itself")


class _Trial:
    """Both products on operands queries, keys, weights, values, each [heads, tiles, rows, columns]."""

    def __init__(self, num_kv_heads: int, group: int, head_dim: int) -> None:
        self._heads, self._group, self._dim = num_kv_heads, group, head_dim

    def num_bytes(self, size: int) -> int:
        """Of one tile: its keys and values, and its scores twice."""
        return 4 * self._heads * CHUNK * 2 * (self._dim + size * self._group)

    def is_blind_to_place(self, base: int) -> bool:
        """Whether a token's results are the same at all places of a tile of `base` tokens."""
        queries, keys, weights, values = self._operands(1, base)
        by = self._group
        with torch_threads(1):
            expected = self._products(queries, keys, weights, values)
            moved = self._products(queries.roll(by, 2), keys, weights.roll(by, 2), values)
        return all(torch.equal(a.roll(by, 2), b) for a, b in zip(expected, moved, strict=True))

    def agreeing(self, size: int, counts: tuple[int, ...], base: int, num_threads: int) -> tuple[int, ...]:
        """Those of `counts` for which tiles of `size` have the bits of single tiles of `base`, one thread."""
        operands = self._operands(counts[-1], max(size, base))
        with torch_threads(1):
            expected = self._one_by_one(operands, base)
        with torch_threads(num_threads):
            return tuple(n for n in counts if self._agrees(operands, expected, n, size))

    def _agrees(
        self, operands: list[torch.Tensor], expected: list[torch.Tensor], count: int, size: int
    ) -> bool:
        rows = size * self._group
        queries, keys, weights, values = (tensor[:, :count] for tensor in operands)
        found = self._products(queries[:, :, :rows], keys, weights[:, :, :rows], values)
        return all(torch.equal(a[:, :count, :rows], b) for a, b in zip(expected, found, strict=True))

    def _one_by_one(self, operands: list[torch.Tensor], base: int) -> list[torch.Tensor]:
        """Both products, in tiles of `base` tokens, each alone."""
        rows = base * self._group
        tiles = []
        for queries, keys, weights, values in zip(*(tensor.split(1, 1) for tensor in operands), strict=True):
            pieces = zip(queries.split(rows, 2), weights.split(rows, 2), strict=True)
            products = [self._products(q, keys, w, values) for q, w in pieces]
            tiles.append([torch.cat(parts, 2) for parts in zip(*products, strict=True)])
        return [torch.cat(parts, 1) for parts in zip(*tiles, strict=True)]

    def _products(self, *operands: torch.Tensor) -> list[torch.Tensor]:
        shape = operands[0].shape[:3]
        queries, keys, weights, values = (tensor.reshape(-1, *tensor.shape[2:]) for tensor in operands)
        return [
            scores(queries, keys).view(*shape, CHUNK),
            weighted(weights, values).view(*shape, self._dim),
        ]

    def _operands(self, count: int, size: int) -> list[torch.Tensor]:
        rows = size * self._group
        shapes = [(rows, self._dim), (CHUNK, self._dim), (rows, CHUNK), (CHUNK, self._dim)]
        return [mixed_numbers(self._heads, count, *shape) for shape in shapes]
