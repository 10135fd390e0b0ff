"""What the sampler makes of logits that are not ordinary numbers."""

from __future__ import annotations

import numpy as np

from noria.config.errors import NoriaError


class SamplingFault(NoriaError):
    """One request cannot be sampled from, by its own fault. The runner turns it into that request's Failure."""


class LogitsFault(SamplingFault):
    """Likewise, and not by its own fault: what the model computed for it are no numbers."""


def settle(logits: np.ndarray) -> tuple[np.ndarray, float]:
    """Logits [n] fit for arithmetic, and their maximum, which is finite.

    -inf is an impossible token and stays. +inf is a certain one: several share the probability evenly, all
    others have none, as in the limit of a growing logit; the result then holds 0 and -inf.
    Raises SamplingFault where a logit is NaN or no token is possible.
    """
    peak = float(logits.max())  # NaN if any logit is
    if np.isfinite(peak):
        return logits, peak
    if peak == np.inf:
        return np.where(logits == np.inf, logits.dtype.type(0), logits.dtype.type(-np.inf)), 0.0
    raise fault_of(logits)


def fault_of(logits: np.ndarray) -> SamplingFault:
    """Why nothing can be sampled from logits [n] that `settle` refuses."""
    bad = np.flatnonzero(np.isnan(logits))
    return no_choice(logits.size, bad.size, int(bad[0]) if bad.size else 0)


def no_choice(size: int, num_nan: int, first_nan: int) -> SamplingFault:
    """Why nothing can be sampled from `size` logits: so many of them are NaN, or else all are -inf."""
    if num_nan == 0:
        return SamplingFault(f"no token is possible: all {size} logits are -inf")
    return LogitsFault(
        f"the logits are not numbers: {num_nan} of {size} are NaN, the first at token id {first_nan}"
    )
