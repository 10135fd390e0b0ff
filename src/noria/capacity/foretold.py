"""A figure that several simulations of one load came to, and where the real one is to be expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

COVERAGE = 0.9
_Z = 1.6449  # standard deviations to either side that hold that share of a normal distribution


@dataclass(frozen=True, slots=True)
class Expected:
    """value: the middle. low, high: the ends of the interval; NaN where nobody can tell."""

    value: float
    low: float
    high: float


def foretold(values: Sequence[float]) -> Expected:
    """The middle, and the interval in which one more value lies with a probability of COVERAGE.

    values: of simulations that each took another of the step models that may be the true one. One more is as likely to
    lie anywhere as they are: mean +- t s sqrt(1 + 1/n), of logarithms where all are above zero. The ends are NaN for
    fewer than two.
    """
    numbers = np.array(values, dtype=np.float64)
    middle = float(np.median(numbers))
    if len(numbers) < 2:
        return Expected(middle, math.nan, math.nan)
    if numbers.min() <= 0:
        low, high = _ends(numbers)
        return Expected(middle, low, high)
    low, high = _ends(np.log(numbers))
    return Expected(middle, math.exp(low), math.exp(high))


def _ends(numbers: np.ndarray) -> tuple[float, float]:
    count = len(numbers)
    half = _student(count - 1) * float(numbers.std(ddof=1)) * math.sqrt(1 + 1 / count)
    mean = float(numbers.mean())
    return mean - half, mean + half


def _student(freedom: int) -> float:
    """Student's quantile; one and two degrees of freedom exactly, more by a series (Abramowitz and Stegun, 26.7.5)."""
    share = (1 + COVERAGE) / 2
    if freedom == 1:
        return math.tan(math.pi * (share - 0.5))
    if freedom == 2:
        return (2 * share - 1) / math.sqrt(2 * share * (1 - share))
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
