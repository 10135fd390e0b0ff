"""A step's attention as work lists: which tokens go into which tile, which chunks each tile reads.

A tile is some tokens of one sequence, next to each other. A pass is one chunk for each of several tiles. A tile
meets its chunks in the order of the sequence, whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from noria.kernels.batch import Batch
from noria.kernels.ops import Reach
from noria.kernels.torch_ops.chunks import ChunkTable
from noria.kernels.torch_ops.products import CHUNK
from noria.kernels.torch_ops.safe_tiles import SafeTiles, rows_of_tile
from noria.kernels.torch_ops.splitting import split

_TILE_CALL_COST = 12  # tokens: about what gathering a chunk costs beside using it
_PASS_CALL_COST = 1  # tiles


@dataclass(frozen=True, slots=True)
class Pass:
    """One chunk for each of n tiles; a tile may stand twice where n must be a safe count.

    tiles: [n] places in the group. slots: [n, CHUNK]. last, first: [n, M, 1] the lanes that each of a tile's rows
    may see, or None where all rows see all lanes on that side.
    """

    tiles: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor | None
    first: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles of one size. tokens: [tiles, size] rows of the batch; a tile not full repeats its last token.

    num_rows: M, of a tile in each key/value head; row t * group + g is query head g of token t.
    """

    tokens: torch.Tensor
    num_rows: int
    passes: tuple[Pass, ...]


class TilePlanner:
    """Cuts the attention of one step into tiles and passes."""

    def __init__(self, batch: Batch, table: ChunkTable, safe: SafeTiles, device: str) -> None:
        self._batch = batch
        self._table = table
        self._safe = safe
        self._device = device

    def groups(self, window: int, reach: Reach, group: int) -> tuple[TileGroup, ...]:
        """window: tokens a query may look back on, itself included; 0 means all. group: query heads a KV head."""
        groups = []
        for size, tiles in self._cut().items():
            tokens = np.minimum(tiles[:, 1:2] + np.arange(size), tiles[:, 2:] - 1)
            positions = self._batch.positions[tokens].astype(np.int64)
            first = np.maximum(positions - window + 1, 0) if window else np.zeros_like(positions)
            last = positions
            if reach is Reach.WHOLE:
                last = np.broadcast_to(self._batch.context_lens[tiles[:, :1]] - 1, positions.shape)
            groups.append(self._group(tiles[:, 0], tokens, (first, last), group))
        return tuple(groups)

    def _cut(self) -> dict[int, np.ndarray]:
        """By size: [tiles, 3], a tile's sequence and its span of rows."""
        by_size: dict[int, list[tuple[int, int, int]]] = {}
        starts = self._batch.query_starts.tolist()
        for sequence, (start, end) in enumerate(pairwise(starts)):
            for size in split(end - start, self._safe.sizes, _TILE_CALL_COST):
                by_size.setdefault(size, []).append((sequence, start, min(start + size, end)))
                start += size
        return {size: np.array(tiles) for size, tiles in by_size.items()}

    def _group(
        self, sequences: np.ndarray, tokens: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], group: int
    ) -> TileGroup:
        """tokens: [tiles, size] rows of the batch. bounds: the first and the last position that each sees."""
        size = tokens.shape[1]
        num_rows = rows_of_tile(size, group)
        seen = _Seen(*(_by_row(bound, group, num_rows) for bound in bounds))
        passes = tuple(self._passes(sequences, seen, self._safe.counts[size]))
        return TileGroup(self._tensor(tokens), num_rows, passes)

    def _passes(self, sequences: np.ndarray, seen: _Seen, counts: tuple[int, ...]) -> Iterator[Pass]:
        """In the order of the chunks; each tile in those that any of its rows sees."""
        for chunk, active in seen.by_chunk():
            for count in split(len(active), counts, _PASS_CALL_COST):
                chosen, active = np.resize(active[:count], count), active[count:]
                slots = self._table.slots[self._table.first[sequences[chosen]] + chunk]
                last, first = (bound[chosen] - chunk * CHUNK for bound in (seen.last, seen.first))
                yield Pass(
                    tiles=self._tensor(chosen),
                    slots=self._tensor(slots),
                    last=self._tensor(last) if (last < CHUNK - 1).any() else None,
                    first=self._tensor(first) if (first > 0).any() else None,
                )

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Positions that each row of each tile sees, both ends included: [tiles, M, 1] each."""

    first: np.ndarray
    last: np.ndarray

    def by_chunk(self) -> Iterator[tuple[int, np.ndarray]]:
        """(chunk, tiles of which a row sees some of it)"""
        first_chunk = self.first.min((1, 2)) // CHUNK
        last_chunk = self.last.max((1, 2)) // CHUNK
        for chunk in range(first_chunk.min(), last_chunk.max() + 1):
            yield chunk, np.nonzero((first_chunk <= chunk) & (chunk <= last_chunk))[0]


def _by_row(bound: np.ndarray, group: int, num_rows: int) -> np.ndarray:
    """[tiles, size] -> [tiles, M, 1]; rows that fill up a tile are like its last one."""
    rows = np.repeat(bound, group, axis=1)
    return np.pad(rows, ((0, 0), (0, num_rows - rows.shape[1])), mode="edge")[:, :, None]
