"""Where the KV of a step's sequences lies, chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noria.kernels.batch import Batch
from noria.kernels.ops import CacheShape
from noria.kernels.torch_ops.products import CHUNK


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """slots: [C, CHUNK]; row first[s] + c holds the slots of tokens [c * CHUNK, (c + 1) * CHUNK) of sequence s.

    Lanes past the context's end point to the cache's zero slot.
    """

    slots: np.ndarray
    first: np.ndarray  # [S]


def chunk_table(batch: Batch, cache: CacheShape, zero_slot: int) -> ChunkTable:
    """All the chunks that the contexts of the batch reach into."""
    counts = -(-batch.context_lens // CHUNK)
    first = np.cumsum(counts) - counts
    sequences = np.repeat(np.arange(len(counts)), counts)
    starts = (np.arange(len(sequences)) - first[sequences]) * CHUNK
    positions = starts[:, None] + np.arange(CHUNK)
    written = positions < batch.context_lens[sequences][:, None]
    columns = np.where(written, positions // cache.block_size, 0)
    blocks = batch.block_tables[sequences[:, None], columns].astype(np.int64)
    slots = np.where(written, blocks * cache.block_size + positions % cache.block_size, zero_slot)
    return ChunkTable(slots, first)
