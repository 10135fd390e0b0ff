"""Log-probabilities of tokens under the model's own logits."""

from __future__ import annotations

import math

import numpy as np

from noria.core.plan import TokenLogprobs
from noria.sampling.nonfinite import settle
from noria.sampling.order import largest, rank


def token_logprobs(logits: np.ndarray, token_id: int, num_top: int) -> TokenLogprobs:
    """Log-probability and rank of token_id, and the num_top likeliest tokens, by log-softmax of logits [vocab].

    The exponentials are float32 and their sum float64, which keeps a logprob within 1e-6 of the exact one.
    Raises SamplingFault where a logit is NaN or all are -inf.
    """
    logits, peak = settle(logits)
    with np.errstate(over="ignore"):  # -inf will do
        weights = np.exp(logits - np.float32(peak))
    log_total = math.log(weights.sum(dtype=np.float64))

    def logprob(index: int) -> float:
        # In this order, so that a big peak does not swallow the small total.
        return (float(logits[index]) - peak) - log_total

    return TokenLogprobs(
        token_id=token_id,
        logprob=logprob(token_id),
        rank=rank(logits, token_id),
        top=tuple((other, logprob(other)) for other in largest(logits, num_top).tolist()),
    )
