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
    total = peak + math.log(np.exp(logits - logits.dtype.type(peak)).sum(dtype=np.float64))
    top = largest(logits, num_top)
    return TokenLogprobs(
        token_id=token_id,
        logprob=float(logits[token_id]) - total,
        rank=rank(logits, token_id),
        top=tuple((int(other), float(logits[other]) - total) for other in top),
    )
