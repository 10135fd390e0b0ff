"""The native sampler: all rows of a step in one call, by the threads that computed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noria.core.plan import TokenLogprobs
from noria.kernels.native import _native
from noria.sampling.logprobs import Asked
from noria.sampling.nonfinite import SamplingFault, no_choice
from noria.sampling.params import SamplingParams
from noria.sampling.processors import Processors
from noria.sampling.sampler import ending_ids
from noria.sampling.token_masks import Allowed

_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """processors: None where the request has none, which is nearly always."""

    native: _native.SampledRequest
    processors: Processors | None


class NativeSampler:
    """A kernels.ops.Sampler. A request's logits processors and masks run in Python, the choice after them does not."""

    def __init__(self, pool: _native.Pool) -> None:
        self._native = _native.Sampler(pool)

    def admit(
        self,
        params: SamplingParams,
        seed: int,
        token_ids: Sequence[int],
        num_prompt: int,
        eos_token_ids: Sequence[int],
    ) -> NativeRequest:
        known = np.array(token_ids, dtype=np.int32)
        native = _native.SampledRequest(
            params, seed & _WORD, known, num_prompt, ending_ids(params, eos_token_ids)
        )
        if not Processors.are_asked_by(params):
            return NativeRequest(native, None)
        return NativeRequest(native, Processors(params, token_ids[:num_prompt], token_ids[num_prompt:]))

    def sample(
        self,
        logits: np.ndarray,
        rows: Sequence[int],
        requests: Sequence[NativeRequest],
        allowed: Allowed | None = None,
    ) -> list[int | SamplingFault]:
        allowed = allowed or Allowed.everything(len(requests))
        plain = [place for place, request in enumerate(requests) if request.processors is None]
        natives = [requests[place].native for place in plain]
        if len(plain) == len(requests):
            return self._chosen(logits, rows, natives, allowed)
        choices: list[int | SamplingFault] = [0] * len(requests)
        chosen = self._chosen(logits, [rows[place] for place in plain], natives, allowed.taken(plain))
        for place, choice in zip(plain, chosen, strict=True):
            choices[place] = choice
        for place, request in enumerate(requests):
            if request.processors is not None:
                own = allowed.taken([place])
                choices[place] = self._processed(logits[rows[place]], request.native, request.processors, own)
        return choices

    def logprobs(self, logits: np.ndarray, asked: Sequence[Asked]) -> list[TokenLogprobs | SamplingFault]:
        count, width = len(asked), max(entry.num_top for entry in asked)
        outcomes = np.empty((count, 4), dtype=np.int32)
        top_ids = np.empty((count, width), dtype=np.int32)
        top = np.empty((count, 1 + width))
        self._native.logprobs(logits, np.array(asked, dtype=np.int32), outcomes, top_ids, top)
        told: list[TokenLogprobs | SamplingFault] = []
        for entry, outcome, ids, values in zip(
            asked, outcomes.tolist(), top_ids.tolist(), top.tolist(), strict=True
        ):
            token_id, num_nan, first_nan, rank = outcome
            if token_id < 0:
                told.append(_fault(logits, num_nan, first_nan))
                continue
            others = tuple(zip(ids[: entry.num_top], values[1 : 1 + entry.num_top], strict=True))
            told.append(TokenLogprobs(token_id, values[0], rank, others))
        return told

    def _chosen(
        self,
        logits: np.ndarray,
        rows: Sequence[int],
        requests: list[_native.SampledRequest],
        allowed: Allowed,
    ) -> list[int | SamplingFault]:
        outcomes = np.empty((len(requests), 3), dtype=np.int32)
        places = np.array(rows, dtype=np.int32)
        self._native.sample(logits, places, requests, allowed.bits, allowed.places, outcomes)
        return _choices(logits, outcomes)

    def _processed(
        self, row: np.ndarray, request: _native.SampledRequest, processors: Processors, allowed: Allowed
    ) -> int | SamplingFault:
        row = row.copy()
        request.adjust(row)
        try:
            row = processors.apply(row, allowed.row(0))
        except SamplingFault as fault:
            return fault
        outcomes = np.empty((1, 3), dtype=np.int32)
        first = np.zeros(1, dtype=np.int32)
        self._native.sample_adjusted(row[None], first, [request], allowed.bits, allowed.places, outcomes)
        (choice,) = _choices(row[None], outcomes)
        if not isinstance(choice, SamplingFault):
            processors.append(choice)
        return choice


def _choices(logits: np.ndarray, outcomes: np.ndarray) -> list[int | SamplingFault]:
    """outcomes: int32 [n, 3], token id or -1, then how many logits are NaN and the first of them."""
    choices: list[int | SamplingFault] = outcomes[:, 0].tolist()
    for place in np.flatnonzero(outcomes[:, 0] < 0).tolist():
        choices[place] = _fault(logits, *outcomes[place, 1:].tolist())
    return choices


def _fault(logits: np.ndarray, num_nan: int, first_nan: int) -> SamplingFault:
    return no_choice(logits.shape[1], num_nan, first_nan)
