"""Queues whose answers are known: waiting times of M/M/1 and M/D/1."""

from __future__ import annotations

from math import exp, factorial

import numpy as np

from noria.bench.stats import Values


def waits(random: np.random.Generator, count: int, load: float, is_fixed: bool) -> Values:
    """Waiting times in the steady state, mean service time 1: Lindley's recursion, begun in the steady state by a
    long start that is thrown away."""
    start = 500
    between = random.exponential(1 / load, count + start)
    served = np.ones(count + start) if is_fixed else random.exponential(1.0, count + start)
    found = np.zeros(count + start)
    for place in range(1, count + start):
        found[place] = max(0.0, found[place - 1] + served[place - 1] - between[place])
    return found[start:]


def mm1_wait_share(limit: float, load: float) -> float:
    """P(wait <= limit) = 1 - rho exp(-(1 - rho) limit)."""
    return 1 - load * exp(-(1 - load) * limit)


def md1_wait_share(limit: float, load: float) -> float:
    """P(wait <= limit), by Erlang's sum."""
    total = sum(
        (load * (k - limit)) ** k / factorial(k) * exp(-load * (k - limit)) for k in range(int(limit) + 1)
    )
    return (1 - load) * total


def limit_of(share: float, load: float, is_fixed: bool) -> float:
    """The limit that exactly this share of waits keeps, by bisection."""
    shares = md1_wait_share if is_fixed else mm1_wait_share
    low, high = 0.0, 60.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if shares(middle, load) < share else (low, middle)
    return high
