"""Logarithms and weights from the basic operations of IEEE 754 alone: every implementation makes the same bits.

A library's log and exp differ from another's in the last bits, and so might two samplers' choices. What is here
is written as single additions, multiplications, divisions and roundings, in this order, none of them fused.
The native sampler repeats them (native/src/sample_math.h, native/src/sample_avx2.cpp).
"""

from __future__ import annotations

import math

import numpy as np

WEIGHT_BITS = 42  # a weight of 1, shifted: the weights of 2**20 tokens add up without overflow
_CHUNK = 8192  # numbers whose passes stay in a near cache
_LIGHTEST = np.float32(-32.0)  # and all below: less than half of the smallest weight
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_EXP_SERIES = tuple(  # pairs of neighbouring factors, so that few steps wait for each other
    (np.float32(1.0 / math.factorial(n)), np.float32(1.0 / math.factorial(n + 1))) for n in (0, 2, 4, 6)
)

_SQRT_HALF = 0.7071067811865476
_LN2_FIRST, _LN2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG_SERIES = tuple(1.0 / n for n in range(21, 2, -2))


def ln(numbers: np.ndarray) -> np.ndarray:
    """Natural logarithm of positive float64 [n], within 2 units in the last place.

    x = m 2**e with sqrt(1/2) <= m < sqrt(2); ln m = 2 atanh(s) by its series, s = (m - 1) / (m + 1).
    """
    fraction, exponent = np.frexp(numbers)
    is_low = fraction < _SQRT_HALF
    fraction = np.where(is_low, 2 * fraction, fraction)
    exponent = (exponent - is_low).astype(np.float64)
    above = fraction - 1.0
    s = above / (2.0 + above)
    z = s * s
    series = np.full_like(z, _LOG_SERIES[0])
    for factor in _LOG_SERIES[1:]:
        series = series * z + factor
    twice = s + s
    return exponent * _LN2_FIRST + (twice + (twice * z * series + exponent * _LN2_REST))


def weights(scaled: np.ndarray) -> np.ndarray:
    """e**scaled in units of 2**-WEIGHT_BITS, int64 [n], from float32 [n], at most 0.

    Whole numbers, so that sums of them are exact in any order. Within 3e-7 of their size, or half a unit.
    x = n ln 2 + r with |r| <= ln 2 / 2, e**r by its series to r**7, in float32.
    """
    made = np.empty(scaled.size, dtype=np.int64)
    for start in range(0, scaled.size, _CHUNK):
        made[start : start + _CHUNK] = _weights(scaled[start : start + _CHUNK])
    return made


def _weights(scaled: np.ndarray) -> np.ndarray:
    x = np.maximum(scaled, _LIGHTEST)
    n = np.rint(x * _LOG2_E)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    squared = r * r
    first, second, third, fourth = (low + r * high for low, high in _EXP_SERIES)
    series = (first + squared * second) + (squared * squared) * (third + squared * fourth)
    series *= ((n.astype(np.int32) + (127 + WEIGHT_BITS)) << 23).view(np.float32)  # 2**n, by its exponent
    return np.rint(series, out=series)


def log_of_weights(total: int) -> float:
    """ln of a sum of weights, in units of 1. total: at least 1."""
    return float(ln(np.array(total, dtype=np.float64) * 2.0**-WEIGHT_BITS))


def share_of(total: int, share: float) -> int:
    """The smallest whole number that is no less than the product, taken in float64. share in (0, 1]."""
    return math.ceil(share * float(total))
