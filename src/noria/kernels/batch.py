"""One forward pass, flat over the sequences of a step, any mix of chunks and decodes: its input, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Batch:
    """T tokens of S sequences. All arrays are int32, C-contiguous.

    # sequence s owns rows [query_starts[s], query_starts[s + 1]); they are its tokens
    # [context_lens[s] - rows, context_lens[s]); everything before already has KV
    """

    token_ids: np.ndarray  # [T]
    token_types: np.ndarray  # [T] 0, or 1 in the second text of a pair; of models that tell them apart
    positions: np.ndarray  # [T] from the start of the sequence
    slots: np.ndarray  # [T] where the token's KV goes: block * block_size + offset
    query_starts: np.ndarray  # [S + 1]
    context_lens: np.ndarray  # [S] tokens with KV once this pass is done
    block_tables: np.ndarray  # [S, B] block ids in order; entries past the context are 0
    logit_rows: np.ndarray  # [R] rows whose logits are wanted, ascending
    hidden_rows: np.ndarray  # [P] rows whose final hidden states are wanted, ascending


@dataclass(frozen=True, slots=True)
class Outputs:
    """Of the wanted rows, float32 and freshly made. A model that gives no logits has [0, 0] of them."""

    logits: np.ndarray  # [R, V]
    hidden: np.ndarray  # [P, H] after the last norm
