"""A step's work as the flat arrays that a model reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.core.plan import Work
from noria.kernels.batch import Batch
from noria.runner.state import RequestState

Share = tuple[RequestState, Work]


def build_batch(shares: Sequence[Share], block_size: int) -> Batch:
    """The batch of these shares, in their order. Each state has already advanced over its work.

    Which rows of a share are wanted, and as what, its state's duty says.
    """
    starts = np.array([work.num_computed for _, work in shares], dtype=np.int32)
    counts = np.array([work.num_new for _, work in shares], dtype=np.int32)
    query_starts = np.zeros(len(shares) + 1, dtype=np.int32)
    np.cumsum(counts, out=query_starts[1:])
    seconds = np.array([state.duty.second_text for state, _ in shares], dtype=np.int32)
    context_lens = starts + counts
    tables = _block_tables(shares, context_lens, block_size)
    positions = np.arange(query_starts[-1], dtype=np.int32) + np.repeat(starts - query_starts[:-1], counts)
    sequences = np.repeat(np.arange(len(shares), dtype=np.int32), counts)
    return Batch(
        token_ids=_token_ids(shares),
        token_types=(positions >= np.repeat(seconds, counts)).astype(np.int32),
        positions=positions,
        slots=tables[sequences, positions // block_size] * block_size + positions % block_size,
        query_starts=query_starts,
        context_lens=context_lens,
        block_tables=tables,
        logit_rows=_rows(query_starts, [state.duty.logit_offsets(work) for state, work in shares]),
        hidden_rows=_rows(query_starts, [state.duty.hidden_offsets(work) for state, work in shares]),
    )


def _token_ids(shares: Sequence[Share]) -> np.ndarray:
    return np.concatenate(
        [state.tokens.view()[work.num_computed : work.num_computed + work.num_new] for state, work in shares]
    )


def _block_tables(shares: Sequence[Share], context_lens: np.ndarray, block_size: int) -> np.ndarray:
    num_blocks = (-(-context_lens // block_size)).tolist()
    tables = np.zeros((len(shares), max(num_blocks)), dtype=np.int32)
    for row, (state, _), used in zip(tables, shares, num_blocks, strict=True):
        row[:used] = state.blocks.view()[:used]
    return tables


def _rows(query_starts: np.ndarray, offsets: Sequence[Sequence[int]]) -> np.ndarray:
    """offsets: of each share, from its first row."""
    starts = query_starts[:-1].tolist()
    rows = [start + offset for start, wanted in zip(starts, offsets, strict=True) for offset in wanted]
    return np.array(rows, dtype=np.int32)
