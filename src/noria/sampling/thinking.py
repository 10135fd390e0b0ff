"""A bound on how long a model reasons before it answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import is_allowed


class ThinkingLimit:
    """Where one request's reasoning is, from its output alone: so it is the same after a preemption.

        # begin_ids | reasoning: at most `budget` tokens | end_ids | answer

    What has been reasoned counts from behind the begin marker. Once it is as much as the budget, the tokens of the end
    marker are the only ones that may be chosen, one after another; a grammar may put that off for as long as a
    character is incomplete.
    """

    def __init__(self, params: SamplingParams, output_ids: Sequence[int]) -> None:
        """output_ids: sampled so far. Without begin marker the output begins with reasoning."""
        assert params.thinking_token_budget is not None and params.reasoning_end_ids
        self._budget = params.thinking_token_budget
        self._begin = params.reasoning_begin_ids
        self._end = params.reasoning_end_ids
        self._tail: tuple[int, ...] = ()  # as much of the output as may hold a marker
        self._num_reasoned = 0 if not self._begin else None  # None: it has not begun, or is over
        self._is_over = False
        for token_id in output_ids:
            self.append(token_id)

    @staticmethod
    def is_asked_by(params: SamplingParams) -> bool:
        return params.thinking_token_budget is not None

    def append(self, token_id: int) -> None:
        """Tell of a token that joined the output."""
        if self._is_over:
            return
        self._tail = (*self._tail, token_id)[-max(len(self._begin), len(self._end)) :]
        if self._num_reasoned is None:
            if self._tail[-len(self._begin) :] == self._begin:
                self._num_reasoned, self._tail = 0, ()
            return
        self._num_reasoned += 1
        self._is_over = self._tail[-len(self._end) :] == self._end

    def apply(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> None:
        """Leave of logits [vocab] float32, in place, what may be chosen.

        allowed: the bits (`token_masks.Masks`) of the tokens that may be, None: all. Where the marker's next is not
            one of them, as within a character, whatever leads there may be chosen.
        """
        if self._is_over or self._num_reasoned is None or self._num_reasoned < self._budget:
            return
        forced = self._end[self._num_written(self._num_reasoned - self._budget)]
        if allowed is not None and not is_allowed(allowed, forced):
            return
        logits.fill(-np.inf)
        logits[forced] = 0.0

    def _num_written(self, num_beyond: int) -> int:
        """How many tokens of the end marker the output ends with, of those beyond the budget."""
        most = min(num_beyond, len(self._end) - 1)
        return next(count for count in range(most, -1, -1) if self._ends_with(self._end[:count]))

    def _ends_with(self, token_ids: tuple[int, ...]) -> bool:
        return not token_ids or self._tail[-len(token_ids) :] == token_ids
