"""What a request wants of the rows of its share of a step, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from noria.config.pooling import Head, Pooling, PoolingParams
from noria.core.plan import Numbers, Pooled, PromptLogprobs, Work
from noria.kernels.ops import SampledRequest
from noria.models.pooling_heads import PoolingHeads, finished
from noria.runner.reader import Reader
from noria.sampling.logprobs import Asked
from noria.sampling.nonfinite import LogitsFault
from noria.sampling.params import SamplingParams

_NONE: range = range(0)
NOWHERE = 2**31 - 1  # beyond every position


class Duty(Protocol):
    """Of one request. Offsets count from the first token of a share, ascending.

    # a share is positions [work.num_computed, work.num_computed + work.num_new)

    second_text: the position of the first token of type 1, of a pair of texts; NOWHERE where there is one text.
    """

    @property
    def second_text(self) -> int: ...

    def num_prompt_rows(self, work: Work) -> int:
        """How many positions of this share have the logits of a prompt token whose logprob is asked for.

        They are its first positions: position p tells of token p + 1, the prompt's last of none in the prompt.
        """
        ...

    def logit_offsets(self, work: Work) -> Sequence[int]: ...

    def hidden_offsets(self, work: Work) -> Sequence[int]: ...

    def read(self, request_id: str, work: Work, tokens: np.ndarray, reader: Reader) -> None:
        """Take the rows that were asked for from the reader, in their order. tokens: all known ones."""
        ...


class Generating:
    """Samples the next token where the share ends what is known, and tells log-probabilities of the prompt."""

    second_text = NOWHERE

    def __init__(self, params: SamplingParams, sampled: SampledRequest, num_prompt: int) -> None:
        self.params = params
        self.sampled = sampled
        self._num_prompt = num_prompt

    def num_prompt_rows(self, work: Work) -> int:
        if self.params.prompt_logprobs is None:
            return 0
        end = min(work.num_computed + work.num_new, self._num_prompt - 1)
        return max(0, end - work.num_computed)

    def logit_offsets(self, work: Work) -> Sequence[int]:
        last = (work.num_new - 1,) if work.samples else ()
        return (*range(self.num_prompt_rows(work)), *last)

    def hidden_offsets(self, work: Work) -> Sequence[int]:
        return _NONE

    def read(self, request_id: str, work: Work, tokens: np.ndarray, reader: Reader) -> None:
        num_rows = self.num_prompt_rows(work)
        if num_rows:
            start = work.num_computed + 1
            self._score(request_id, start, tokens[start : start + num_rows].tolist(), reader)
        if work.samples:
            reader.sample(request_id, self.params, self.sampled)

    def _score(self, request_id: str, start: int, targets: list[int], reader: Reader) -> None:
        """Logprobs of prompt tokens [start, start + len(targets))."""
        first = reader.take_logits(len(targets))
        num_top = self.params.prompt_logprobs or 0
        told = reader.logprobs(
            request_id, [Asked(first + place, target, num_top) for place, target in enumerate(targets)]
        )
        if told:
            reader.prompt_logprobs.append(PromptLogprobs(request_id, start, told))


class PoolingDuty:
    """Gathers the states that count, and makes something of them with the prompt's last token."""

    def __init__(self, params: PoolingParams, num_prompt: int, heads: PoolingHeads) -> None:
        self.second_text = params.num_first or NOWHERE
        self._params = params
        self._num_prompt = num_prompt
        self._heads = heads
        self._kept: list[np.ndarray] = []  # rows that count by themselves
        self._sum: np.ndarray | None = None  # of all rows so far, where their mean counts

    def num_prompt_rows(self, work: Work) -> int:
        return 0

    def logit_offsets(self, work: Work) -> Sequence[int]:
        is_wanted = self._params.head is Head.TOKENS and self._ends(work)
        return (work.num_new - 1,) if is_wanted else _NONE

    def hidden_offsets(self, work: Work) -> Sequence[int]:
        if self._params.head is Head.TOKENS:
            return _NONE
        return _COUNTING[self._params.pooling](work, self._ends(work))

    def read(self, request_id: str, work: Work, tokens: np.ndarray, reader: Reader) -> None:
        params = self._params
        self._gather(reader.take_hidden(len(self.hidden_offsets(work))))
        if not self._ends(work):
            return
        if params.head is Head.TOKENS:
            made = reader.logits_of(params.token_ids)
        else:
            made = self._heads.apply(params.head, self._pooled())[..., : params.dimensions]
        if not np.isfinite(made).all():
            reader.failures[request_id] = LogitsFault(
                f"what was made of the prompt are not numbers: {_first_odd(made)}"
            )
            return
        numbers = np.ascontiguousarray(finished(made, params.finish), dtype="<f4")
        reader.pooled.append(Pooled(request_id, Numbers(numbers.shape, numbers.tobytes())))

    def _ends(self, work: Work) -> bool:
        return work.num_computed + work.num_new == self._num_prompt

    def _gather(self, rows: np.ndarray) -> None:
        if self._params.pooling is not Pooling.MEAN:
            self._kept.append(rows)
        elif len(rows):
            # Row after row in float64, whatever the chunks: the sum so far is the first of them.
            wide = rows.astype(np.float64)
            self._sum = np.add.reduce(wide if self._sum is None else np.vstack((self._sum, wide)), axis=0)

    def _pooled(self) -> np.ndarray:
        """[H], or [tokens, H] where each counts by itself."""
        if self._params.pooling is Pooling.MEAN:
            assert self._sum is not None, "the mean of no rows"
            return np.asarray(self._sum / self._num_prompt)
        rows = np.concatenate(self._kept)
        return rows if self._params.pooling is Pooling.ALL else rows[0]


def _last(work: Work, ends: bool) -> Sequence[int]:
    return (work.num_new - 1,) if ends else _NONE


def _first(work: Work, ends: bool) -> Sequence[int]:
    return _NONE if work.num_computed else (0,)


def _all(work: Work, ends: bool) -> Sequence[int]:
    return range(work.num_new)


_COUNTING = {Pooling.LAST: _last, Pooling.CLS: _first, Pooling.MEAN: _all, Pooling.ALL: _all}


def _first_odd(made: np.ndarray) -> str:
    odd = np.argwhere(~np.isfinite(made))
    return f"{len(odd)} of {made.size} are not finite, the first at {odd[0].tolist()}"
