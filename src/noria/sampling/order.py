"""The one order of tokens: by value, highest first; among equals the lower id comes first."""

from __future__ import annotations

import numpy as np


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` first values [n] in that order, without sorting all of them. No NaN among them."""
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    if count >= values.size:
        return _sorted(values, np.arange(values.size))
    threshold = np.partition(values, values.size - count)[values.size - count]
    above = np.flatnonzero(values > threshold)
    equal = np.flatnonzero(values == threshold)[: count - above.size]
    return _sorted(values, np.concatenate((above, equal)))


def rank(values: np.ndarray, index: int) -> int:
    """Place of values[index] in that order, from 1."""
    value = values[index]
    return 1 + int(np.count_nonzero(values > value)) + int(np.count_nonzero(values[:index] == value))


def _sorted(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return indices[np.lexsort((indices, -values[indices]))]
