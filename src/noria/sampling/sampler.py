"""The choice of a token from logits: exact, and the same in any batch.

This is the definition. A backend with a sampler of its own chooses the same tokens, bit for bit: every operation
that decides is exact, or is spelt out in `noria.sampling.arithmetic`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noria.core.plan import TokenLogprobs
from noria.sampling import random_numbers
from noria.sampling.filters import kept_ids, scale
from noria.sampling.logprobs import Asked, token_logprobs
from noria.sampling.nonfinite import SamplingFault, fault_of
from noria.sampling.params import SamplingParams
from noria.sampling.penalties import Penalties
from noria.sampling.processors import Processors
from noria.sampling.token_masks import Allowed, without_forbidden

_UNLIKELY = -8.0  # scaled logits below this are one token in 3000 of the likeliest; any value is correct
_SLACK = 1.001  # more than the bounds in `draw` may have lost to rounding


class RequestSampler:
    """Chooses the tokens of one request. What it knows from step to step are its place in the text and the
    penalties' counts.

    Order of operations: logit_bias; repetition, frequency and presence penalty; logits_processors;
    allowed_token_ids and bad_word_ids; the step's mask or, where there is none, min_tokens (no token that would end
    the output; a mask has seen to that); then the lowest id among the highest logits if temperature is 0, else
    temperature, min_p, top_k, top_p and a random choice. The random numbers are a function of (seed, position,
    token id), where position is the place in the sequence of the token to choose.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        token_ids: Sequence[int],
        num_prompt: int,
        eos_token_ids: Sequence[int],
    ) -> None:
        """token_ids: all known tokens; [0, num_prompt) is the prompt, the rest was sampled earlier.

        All token ids, those of `params` included, must be below the vocabulary's size.
        """
        self._params = params
        self._seed = seed
        self._num_prompt = num_prompt
        self._num_known = len(token_ids)
        prompt_ids, output_ids = token_ids[:num_prompt], token_ids[num_prompt:]
        self._ending_ids = np.array(ending_ids(params, eos_token_ids), dtype=np.int64)
        self._bias_ids = np.array(list(params.logit_bias), dtype=np.int64)
        self._bias = np.array(list(params.logit_bias.values()), dtype=np.float32)
        self._penalties = (
            Penalties(params, prompt_ids, output_ids) if Penalties.are_asked_by(params) else None
        )
        self._processors = (
            Processors(params, prompt_ids, output_ids) if Processors.are_asked_by(params) else None
        )

    def sample(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> int:
        """The next token, given the model's logits [vocab] float32, which are left as they are.

        allowed: the bits (`token_masks.Masks`) of the tokens that may be chosen, None: all.
        Raises SamplingFault: a logits processor failed, a logit is NaN, or no token is possible.
        """
        logits = self._adjusted(logits, allowed)
        if self._params.is_greedy:
            return _argmax(logits)
        scaled = scale(logits, self._params.temperature)
        key = random_numbers.position_key(self._seed, self._num_known)
        kept = kept_ids(scaled, self._params)
        if kept is None:
            return draw(scaled, np.arange(scaled.size), key)
        return draw(scaled[kept], kept, key)

    def append(self, token_id: int) -> None:
        """Tell of a token that joined the output."""
        self._num_known += 1
        if self._penalties is not None:
            self._penalties.append(token_id)
        if self._processors is not None:
            self._processors.append(token_id)

    def _adjusted(self, logits: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        """Logits after everything that even a greedy choice heeds: a copy if that is anything at all."""
        is_short = allowed is None and self._num_known - self._num_prompt < self._params.min_tokens
        is_masked = allowed is not None
        if not (self._bias_ids.size or self._penalties or self._processors or is_masked or is_short):
            return logits
        logits = logits.copy()
        logits[self._bias_ids] += self._bias
        if self._penalties is not None:
            self._penalties.apply(logits)
        if self._processors is not None:
            logits = self._processors.apply(logits, allowed)
        if allowed is not None:
            logits = without_forbidden(logits, allowed)
        if is_short:
            logits[self._ending_ids] = -np.inf
        return logits


class ReferenceSampler:
    """The kernels.ops.Sampler that says what is right: one request after the other, in numpy."""

    def admit(
        self,
        params: SamplingParams,
        seed: int,
        token_ids: Sequence[int],
        num_prompt: int,
        eos_token_ids: Sequence[int],
    ) -> RequestSampler:
        return RequestSampler(params, seed, token_ids, num_prompt, eos_token_ids)

    def sample(
        self,
        logits: np.ndarray,
        rows: Sequence[int],
        requests: Sequence[RequestSampler],
        allowed: Allowed | None = None,
    ) -> list[int | SamplingFault]:
        allowed = allowed or Allowed.everything(len(requests))
        return [
            _sampled(logits[row], request, allowed.row(place))
            for place, (row, request) in enumerate(zip(rows, requests, strict=True))
        ]

    def logprobs(self, logits: np.ndarray, asked: Sequence[Asked]) -> list[TokenLogprobs | SamplingFault]:
        return [_logprobs(logits[row], token_id, num_top) for row, token_id, num_top in asked]


def ending_ids(params: SamplingParams, eos_token_ids: Sequence[int]) -> list[int]:
    """The tokens that end an output, ascending: those that min_tokens withholds."""
    ending = set(params.stop_token_ids)
    if not params.ignore_eos:
        ending.update(eos_token_ids)
    return sorted(ending)


def draw(scaled: np.ndarray, ids: np.ndarray, key: int) -> int:
    """One of ids [n], with probabilities softmax(scaled), by the Gumbel-max trick (Gumbel 1954).

    scaled: float32 [n], as from `filters.scale`. ids: ascending. key: from `random_numbers.position_key`.
    The choice is the token with the highest scaled + noise, in float64, the lowest id among equals.
    """
    bits = random_numbers.random_bits(key, ids)
    # Noise takes two logarithms a token, so first set aside the tokens that cannot win against the likeliest:
    # token i reaches its score only if -log(u_i) <= exp(scaled_i - score), and 1 - u_i <= -log(u_i).
    first = int(scaled.argmax())
    score = scaled[first] + _noise(bits[first : first + 1])[0]
    # Most tokens are so unlikely that one bound, on the bits as they are, does for all of them.
    bound = random_numbers.bits_bound(_SLACK * math.exp(_UNLIKELY - score))
    contenders = np.flatnonzero((scaled > _UNLIKELY) | (bits >= bound))
    reach = _SLACK * np.exp(scaled[contenders] - np.float32(score))
    contenders = contenders[1.0 - random_numbers.uniform(bits[contenders]) <= reach]
    scores = scaled[contenders] + _noise(bits[contenders])
    return int(ids[contenders[scores.argmax()]])


def _sampled(logits: np.ndarray, request: RequestSampler, allowed: np.ndarray | None) -> int | SamplingFault:
    try:
        token_id = request.sample(logits, allowed)
    except SamplingFault as fault:
        return fault
    request.append(token_id)
    return token_id


def _logprobs(logits: np.ndarray, token_id: int, num_top: int) -> TokenLogprobs | SamplingFault:
    try:
        return token_logprobs(logits, token_id, num_top)
    except SamplingFault as fault:
        return fault


def _noise(bits: np.ndarray) -> np.ndarray:
    return random_numbers.gumbel(random_numbers.uniform(bits))


def _argmax(logits: np.ndarray) -> int:
    token_id = int(logits.argmax())  # the first NaN, if there is one
    if not logits[token_id] > -np.inf:
        raise fault_of(logits)
    return token_id
