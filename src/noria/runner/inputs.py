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

    Logit rows of a share: its prompt rows (RequestState.num_prompt_rows), then the last if it samples.
    """
    starts = np.array([work.num_computed for _, work in shares], dtype=np.int32)
    counts = np.array([work.num_new for _, work in shares], dtype=np.int32)
    query_starts = np.zeros(len(shares) + 1, dtype=np.int32)
    np.cumsum(counts, out=query_starts[1:])
    context_lens = starts + counts
    tables = _block_tables(shares, context_lens, block_size)
    positions = np.arange(query_starts[-1], dtype=np.int32) + np.repeat(starts - query_starts[:-1], counts)
    sequences = np.repeat(np.arange(len(shares), dtype=np.int32), counts)
    return Batch(
        token_ids=_token_ids(shares),
        positions=positions,
        slots=tables[sequences, positions // block_size] * block_size + positions % block_size,
        query_starts=query_starts,
        context_lens=context_lens,
        block_tables=tables,
        logit_rows=_logit_rows(shares, query_starts),
        hidden_rows=np.zeros(0, dtype=np.int32),
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


def _logit_rows(shares: Sequence[Share], query_starts: np.ndarray) -> np.ndarray:
    rows: list[int] = []
    for (state, work), start in zip(shares, query_starts.tolist(), strict=False):
        rows.extend(range(start, start + state.num_prompt_rows(work)))
        if work.samples:
            rows.append(start + work.num_new - 1)
    return np.array(rows, dtype=np.int32)
