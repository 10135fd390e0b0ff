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
_ROWS_UNIT = 4  # fewer rows go through other code in common libraries, and get other bits


@dataclass(frozen=True, slots=True)
class SafeTiles:
    """Tiles that agree bit for bit when computed with num_threads.

    counts: per size in tokens, ascending, how many tiles may be computed at once, ascending.
    """

    counts: dict[int, tuple[int, ...]]
    num_threads: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.counts)


def rows_of_tile(size: int, group: int) -> int:
    """Rows of a tile in each key/value head: one a token and query head, and filling up to a round number."""
    return -(-size * group // _ROWS_UNIT) * _ROWS_UNIT


@lru_cache(maxsize=64)
def safe_tiles(num_kv_heads: int, group: int, head_dim: int, max_bytes: int, num_threads: int) -> SafeTiles:
    """group: query heads per key/value head. max_bytes: what the tiles computed at once may take."""
    trial = _Trial(num_kv_heads, group, head_dim)
    for base in filter(trial.is_blind_to_place, _BASES):
        for threads in (num_threads, 1):
            counts = {size: trial.agreeing(size, base, max_bytes, threads) for size in _SIZES}
            counts = {size: agreeing for size, agreeing in counts.items() if agreeing}
            if counts:
                return SafeTiles(counts, threads)
    raise AssertionError("a tile of one token computed by one thread differs from itself")


class _Trial:
    """Both products on operands queries, keys, weights, values, each [tiles, heads, rows, columns]."""

    def __init__(self, num_kv_heads: int, group: int, head_dim: int) -> None:
        self._heads, self._group, self._dim = num_kv_heads, group, head_dim

    def is_blind_to_place(self, base: int) -> bool:
        """Whether a token's results are the same at all places of a tile of `base` tokens."""
        if base == 1:
            return True
        queries, keys, weights, values = self._operands(1, base)
        rows, by = base * self._group, self._group
        queries, weights = queries[:, :, :rows], weights[:, :, :rows]
        with torch_threads(1):
            expected = self._products(queries, keys, weights, values)
            moved = self._products(queries.roll(by, 2), keys, weights.roll(by, 2), values)
        return all(torch.equal(a.roll(by, 2), b) for a, b in zip(expected, moved, strict=True))

    def agreeing(self, size: int, base: int, max_bytes: int, num_threads: int) -> tuple[int, ...]:
        """The counts for which tiles of `size` have the bits of single tiles of `base`, one thread."""
        most = max(1, max_bytes // self._num_bytes(size))
        counts = tuple(count for count in _COUNTS if count <= most)
        operands = self._operands(counts[-1], max(size, base))
        with torch_threads(1):
            expected = self._one_by_one(operands, base)
        with torch_threads(num_threads):
            return tuple(count for count in counts if self._agrees(operands, expected, count, size))

    def _num_bytes(self, size: int) -> int:
        """Of one tile: its keys and values, and its scores twice."""
        return 4 * self._heads * CHUNK * 2 * (self._dim + rows_of_tile(size, self._group))

    def _agrees(
        self, operands: list[torch.Tensor], expected: list[torch.Tensor], count: int, size: int
    ) -> bool:
        rows, used = rows_of_tile(size, self._group), size * self._group
        queries, keys, weights, values = (tensor[:count] for tensor in operands)
        found = self._products(queries[:, :, :rows], keys, weights[:, :, :rows], values)
        pairs = zip(expected, found, strict=True)
        return all(torch.equal(a[:count, :, :used], b[:, :, :used]) for a, b in pairs)

    def _one_by_one(self, operands: list[torch.Tensor], base: int) -> list[torch.Tensor]:
        """Both products for the tokens of the operands, in tiles of `base` tokens, each alone."""
        rows, used = rows_of_tile(base, self._group), base * self._group
        tiles = []
        for queries, keys, weights, values in zip(*(tensor.split(1) for tensor in operands), strict=True):
            spans = [slice(start, start + rows) for start in range(0, queries.shape[2] - _ROWS_UNIT, used)]
            products = [self._products(queries[:, :, s], keys, weights[:, :, s], values) for s in spans]
            tiles.append(
                [torch.cat([p[:, :, :used] for p in parts], 2) for parts in zip(*products, strict=True)]
            )
        return [torch.cat(parts) for parts in zip(*tiles, strict=True)]

    def _products(self, *operands: torch.Tensor) -> list[torch.Tensor]:
        shape = operands[0].shape[:3]
        queries, keys, weights, values = (tensor.reshape(-1, *tensor.shape[2:]) for tensor in operands)
        found = torch.empty(len(queries), shape[2], CHUNK)
        scores(queries, keys, found)
        return [found.view(*shape, CHUNK), weighted(weights, values).view(*shape, self._dim)]

    def _operands(self, count: int, size: int) -> list[torch.Tensor]:
        """With room for the last tile to be filled up, whatever its size."""
        rows = size * self._group + _ROWS_UNIT
        shapes = [(rows, self._dim), (CHUNK, self._dim), (rows, CHUNK), (CHUNK, self._dim)]
        return [mixed_numbers(count, self._heads, *shape) for shape in shapes]
