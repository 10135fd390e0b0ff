"""Which tokens a random choice is made from: temperature, min_p, top_k and top_p."""

from __future__ import annotations

import numpy as np

from noria.sampling.arithmetic import ln, share_of, weights
from noria.sampling.nonfinite import settle
from noria.sampling.order import largest
from noria.sampling.params import SamplingParams

# Beyond these, in float32, a temperature is 0 or infinite, and 0 / 0 and inf / inf are not numbers.
_COLDEST, _HOTTEST = 1e-30, 1e30


def scale(logits: np.ndarray, temperature: float) -> np.ndarray:
    """(logits - their maximum) / temperature: float32 [n], at most 0, and 0 somewhere.

    softmax of the result is the distribution to sample from. temperature: above 0; a tiny one leaves the
    maxima alone possible. Raises SamplingFault as `settle` does.
    """
    logits, peak = settle(logits)
    with np.errstate(over="ignore"):  # beyond float32 is impossible, which -inf says
        scaled = logits - np.float32(peak)
        scaled /= np.float32(min(max(temperature, _COLDEST), _HOTTEST))
    return scaled


def kept_ids(scaled: np.ndarray, params: SamplingParams) -> np.ndarray | None:
    """Token ids that min_p, then top_k, then top_p leave of `scaled` [vocab], ascending; None: all.

    min_p keeps tokens at least min_p times as likely as the likeliest. top_k keeps exactly k, top_p the fewest
    whose probabilities, renormalised over what was left for it, reach top_p; both in the order of
    `noria.sampling.order`. The likeliest token always stays.
    """
    ids = None
    if params.min_p > 0.0:
        ids = np.flatnonzero(scaled >= np.float32(ln(np.array(params.min_p, dtype=np.float64))))
    if 0 < params.top_k < scaled.size:
        ids = _narrowed(ids, largest(_values(scaled, ids), params.top_k))
    if params.top_p < 1.0:
        ids = _narrowed(ids, nucleus(_values(scaled, ids), params.top_p))
    return ids


def nucleus(scaled: np.ndarray, top_p: float) -> np.ndarray:
    """Indices of the fewest likeliest tokens of `scaled` [n] (as from `scale`) that together reach top_p."""
    every = weights(scaled)
    target = share_of(int(every.sum()), top_p)
    # Most nuclei are small: look among the likeliest few, and among more only if those fall short.
    count = 256
    while True:
        order = largest(scaled, count)
        reached = np.cumsum(every[order])
        if reached[-1] >= target or count >= scaled.size:
            return order[: int(np.searchsorted(reached, target)) + 1]
        count *= 8


def _values(scaled: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
    return scaled if ids is None else scaled[ids]


def _narrowed(ids: np.ndarray | None, indices: np.ndarray) -> np.ndarray:
    """The ids at these indices, ascending; ids None: the indices are the ids."""
    indices = np.sort(indices)
    return indices if ids is None else ids[indices]
