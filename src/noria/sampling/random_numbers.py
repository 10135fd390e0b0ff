"""Random numbers that are a function of (seed, position, token id) and of nothing else.

There is no generator to carry along: whoever knows the three numbers knows the random number, in any batch,
after any preemption and in any language. The recipe, in unsigned 64-bit arithmetic that wraps around:

    GOLDEN = 0x9E3779B97F4A7C15

    mix(z):  z ^= z >> 30;  z *= 0xBF58476D1CE4E5B9
             z ^= z >> 27;  z *= 0x94D049BB133111EB
             z ^= z >> 31

    key     = mix(mix(seed + GOLDEN) + (position + 1) * GOLDEN)
    bits    = mix(key + (token_id + 1) * GOLDEN)
    uniform = ((bits >> 12) + 0.5) * 2**-52          exact in float64, in [2**-53, 1 - 2**-53]
    gumbel  = -ln(-ln(uniform))                      float64, in [-3.61, 36.74]

`mix` is the finaliser of SplitMix64 (Steele, Lea, Flood 2014, with Stafford's constants), a bijection; each
number of a position is thus an output of SplitMix64 started at `key`. Everything is to be reproduced bit for bit,
the logarithms too: they are `noria.sampling.arithmetic.ln`.

Test vectors (seed, position, token id -> bits):
    0, 0, 0                                         -> 0x238275BC38FCBE91
    42, 7, 49151                                    -> 0x37E68B963A2CE9B2
    2**64 - 1, 131071, 151935                       -> 0x6467542D1552E233
"""

from __future__ import annotations

import numpy as np

from noria.sampling.arithmetic import ln

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def position_key(seed: int, position: int) -> int:
    """The 64-bit key of one position of a request. seed: any integer, taken modulo 2**64."""
    return _mix(_mix((seed + _GOLDEN) & _WORD) + (position + 1) * _GOLDEN)


def random_bits(key: int, token_ids: np.ndarray) -> np.ndarray:
    """uint64 [n], uniform over all values, one for each of token_ids [n] (integers, 0 or above)."""
    z = token_ids.astype(np.uint64)
    z *= np.uint64(_GOLDEN)
    z += np.uint64((key + _GOLDEN) & _WORD)
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(_FIRST)
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= np.uint64(_SECOND)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
    return z


def uniform(bits: np.ndarray) -> np.ndarray:
    """float64 [n] in the open interval (0, 1) from uint64 [n]."""
    numbers = (bits >> np.uint64(12)).astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-52
    return numbers


def bits_bound(reach: float) -> np.uint64:
    """A bound that all bits with 1 - uniform(bits) <= reach reach, and hardly any others. reach: above 0."""
    return np.uint64(max(0, 2**64 - 4096 - int(2**64 * reach)))  # 4096 bits make the same number


def gumbel(numbers: np.ndarray) -> np.ndarray:
    """Standard Gumbel noise, float64 [n], from uniform numbers [n] in (0, 1)."""
    return -ln(-ln(numbers))


def _mix(z: int) -> int:
    z &= _WORD
    z = ((z ^ (z >> 30)) * _FIRST) & _WORD
    z = ((z ^ (z >> 27)) * _SECOND) & _WORD
    return z ^ (z >> 31)
