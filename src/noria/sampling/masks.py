"""Tokens that a request may not choose, whatever their logits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from noria.sampling.params import SamplingParams


class Masks:
    """allowed_token_ids and bad_word_ids of one request, and as much of its output as decides on them."""

    def __init__(self, params: SamplingParams, output_ids: Sequence[int]) -> None:
        """output_ids: sampled so far."""
        allowed = params.allowed_token_ids
        self._allowed = None if allowed is None else np.array(sorted(set(allowed)), dtype=np.int64)
        self._single = np.array([word[0] for word in params.bad_word_ids if len(word) == 1], dtype=np.int64)
        self._longer = [(word[:-1], word[-1]) for word in params.bad_word_ids if len(word) > 1]
        longest = max((len(beginning) for beginning, _ in self._longer), default=0)
        self._tail: deque[int] = deque(output_ids, maxlen=longest)  # of the output

    @staticmethod
    def are_asked_by(params: SamplingParams) -> bool:
        return params.allowed_token_ids is not None or bool(params.bad_word_ids)

    def append(self, token_id: int) -> None:
        """Tell of a token that joined the output."""
        self._tail.append(token_id)

    def apply(self, logits: np.ndarray) -> None:
        """Make logits [vocab] float32 -inf, in place, wherever the token is not for this request."""
        if self._allowed is not None:
            kept = logits[self._allowed]
            logits.fill(-np.inf)
            logits[self._allowed] = kept
        logits[self._single] = -np.inf
        tail = tuple(self._tail)
        for beginning, last in self._longer:
            if tail[-len(beginning) :] == beginning:
                logits[last] = -np.inf
