"""A step's attention as work lists: which tokens go into which tile, which chunks each tile reads.

A tile is some tokens of one sequence, next to each other. A pass is one chunk for each of several tiles. A tile
meets its chunks in the order of the sequence, whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from noria.kernels.batch import Batch
from noria.kernels.torch_ops.chunks import ChunkTable
from noria.kernels.torch_ops.products import CHUNK
from noria.kernels.torch_ops.safe_tiles import SafeTiles
from noria.kernels.torch_ops.splitting import split

_TILE_CALL_COST = 12  # tokens: about what gathering a chunk costs beside using it
_PASS_CALL_COST = 1  # tiles


@dataclass(frozen=True, slots=True)
class Pass:
    """One chunk for each of n tiles; a tile may stand twice where n must be a safe count.

    tiles: [n] places in the group. slots: [n, CHUNK]. last, first: [n, size] the lanes that each token may see, or
    None where it sees all of them.
    """

    tiles: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor | None
    first: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles of one size. rows: [tiles * size] of the batch; a tile that is not full repeats its last token."""

    size: int
    rows: torch.Tensor
    passes: tuple[Pass, ...]


def tile_groups(
    batch: Batch, table: ChunkTable, window: int, safe: SafeTiles, device: str
) -> tuple[TileGroup, ...]:
    """window: tokens a query may look back on, itself included; 0 means all."""
    by_size: dict[int, list[tuple[int, int, int]]] = {}
    for sequence, start, end in _spans(batch):
        for size in split(end - start, safe.sizes, _TILE_CALL_COST):
            by_size.setdefault(size, []).append((sequence, start, min(start + size, end)))
            start += size
    return tuple(
        _group(batch, table, window, _Tiles.of(tiles, size), safe.counts[size], device)
        for size, tiles in by_size.items()
    )


def _spans(batch: Batch) -> Iterator[tuple[int, int, int]]:
    starts = batch.query_starts.tolist()
    yield from zip(range(len(starts) - 1), starts, starts[1:], strict=False)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Tiles of one size as arrays: sequences [n], rows [n, size] of the batch."""

    size: int
    sequences: np.ndarray
    rows: np.ndarray

    @staticmethod
    def of(tiles: list[tuple[int, int, int]], size: int) -> _Tiles:
        sequences, starts, ends = np.array(tiles).T
        rows = np.minimum(starts[:, None] + np.arange(size), ends[:, None] - 1)
        return _Tiles(size, sequences, rows)


def _group(
    batch: Batch, table: ChunkTable, window: int, tiles: _Tiles, counts: tuple[int, ...], device: str
) -> TileGroup:
    last = batch.positions[tiles.rows].astype(np.int64)
    first = np.maximum(last - window + 1, 0) if window else np.zeros_like(last)
    first_chunk, last_chunk = first[:, 0] // CHUNK, last[:, -1] // CHUNK
    passes = []
    for chunk in range(first_chunk.min(), last_chunk.max() + 1):
        active = np.nonzero((first_chunk <= chunk) & (chunk <= last_chunk))[0]
        for count in split(len(active), counts, _PASS_CALL_COST):
            chosen, active = np.resize(active[:count], count), active[count:]
            slots = table.slots[table.first[tiles.sequences[chosen]] + chunk]
            start = chunk * CHUNK
            passes.append(_pass(chosen, slots, last[chosen] - start, first[chosen] - start, device))
    return TileGroup(tiles.size, torch.from_numpy(tiles.rows.ravel()).to(device), tuple(passes))


def _pass(tiles: np.ndarray, slots: np.ndarray, last: np.ndarray, first: np.ndarray, device: str) -> Pass:
    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return Pass(
        tiles=tensor(tiles),
        slots=tensor(slots),
        last=tensor(last) if (last < CHUNK - 1).any() else None,
        first=tensor(first) if (first > 0).any() else None,
    )
