"""Penalties on tokens that were seen before, with counts kept from step to step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.sampling.params import SamplingParams


class Penalties:
    """Repetition, presence and frequency penalty of one request.

    Keeps every penalised token id once, with the number of times it was sampled: a step costs work in
    proportion to the distinct tokens seen, whatever the vocabulary and the length.
    """

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        """prompt_ids: penalised by the repetition penalty alone. output_ids: sampled so far, in any order."""
        self._repetition = params.repetition_penalty
        self._presence = params.presence_penalty
        self._frequency = params.frequency_penalty
        self._num_seen = 0
        self._ids = np.empty(64, dtype=np.int64)  # [:num_seen], distinct
        self._counts = np.empty(64, dtype=np.int64)  # [:num_seen], 0 for a token of the prompt alone
        self._index: dict[int, int] = {}  # token id -> its place in the two
        if self._repetition != 1.0:
            for token_id in prompt_ids:
                self._find_or_add(token_id)
        for token_id in output_ids:
            self.append(token_id)

    @staticmethod
    def are_asked_by(params: SamplingParams) -> bool:
        return (
            params.repetition_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
        )

    def append(self, token_id: int) -> None:
        """Count a sampled token."""
        self._counts[self._find_or_add(token_id)] += 1

    def apply(self, logits: np.ndarray) -> None:
        """Penalise logits [vocab] float32 in place.

        A seen token's logit is divided by the repetition penalty where positive and multiplied where negative
        (Keskar et al. 2019, CTRL); then frequency * count and presence are subtracted for sampled ones.
        """
        ids = self._ids[: self._num_seen]
        counts = self._counts[: self._num_seen]
        # float64: a penalty that overflows float32 must not turn 0 * inf into NaN
        values = logits[ids].astype(np.float64)
        with np.errstate(over="ignore"):  # an infinite result is meant
            if self._repetition != 1.0:
                values = np.where(values > 0, values / self._repetition, values * self._repetition)
            values -= self._frequency * counts + self._presence * (counts > 0)
            logits[ids] = values

    def _find_or_add(self, token_id: int) -> int:
        index = self._index.get(token_id)
        if index is not None:
            return index
        index = self._num_seen
        if index == self._ids.size:
            self._ids = np.resize(self._ids, 2 * index)
            self._counts = np.resize(self._counts, 2 * index)
        self._ids[index] = token_id
        self._counts[index] = 0
        self._index[token_id] = index
        self._num_seen = index + 1
        return index
