"""Log-probabilities of tokens under the model's own logits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from noria.core.plan import TokenLogprobs
from noria.sampling.arithmetic import log_of_weights, weights
from noria.sampling.nonfinite import settle
from noria.sampling.order import largest, rank


class Asked(NamedTuple):
    """Logprobs wanted of one token. row: of the step's logits."""

    row: int
    token_id: int
    num_top: int


def token_logprobs(logits: np.ndarray, token_id: int, num_top: int) -> TokenLogprobs:
    """Log-probability and rank of token_id, and the num_top likeliest tokens, by log-softmax of logits [vocab].

    Their weights and total are those of `noria.sampling.arithmetic`, which keeps a logprob within 1e-6 of the
    exact one.
    Raises SamplingFault where a logit is NaN or all are -inf.
    """
    logits, peak = settle(logits)
    with np.errstate(over="ignore"):  # -inf will do
        log_total = log_of_weights(int(weights(logits - np.float32(peak)).sum()))

    def logprob(index: int) -> float:
        # In this order, so that a big peak does not swallow the small total.
        return (float(logits[index]) - peak) - log_total

    return TokenLogprobs(
        token_id=token_id,
        logprob=logprob(token_id),
        rank=rank(logits, token_id),
        top=tuple((other, logprob(other)) for other in largest(logits, num_top).tolist()),
    )
