"""Which row counts of a linear give a row the same bits whatever stands beside it.

A matrix library picks its algorithm by the shape of a product and the number of threads, and algorithms add in
different orders. So the backend calls it with a few shapes only, found by trial when a model is built: the bits of
a row are defined by a small product computed with one thread, and other row counts are used where they give the
same bits at every place. Whether they do depends on shapes and library alone, never on the numbers, so any numbers
settle it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch

from noria.kernels.torch_ops.products import multiply
from noria.kernels.torch_ops.threads import torch_threads

_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_BASES = (16, 8, 4, 2, 1)  # one row alone has no neighbours to depend on


@dataclass(frozen=True, slots=True)
class SafeRows:
    """Row counts, ascending, that agree bit for bit when computed with num_threads."""

    counts: tuple[int, ...]
    num_threads: int


def safe_rows(shapes: Iterable[tuple[int, int]], num_threads: int) -> SafeRows:
    """Row counts that are safe for every matrix [N, K] of `shapes` at once."""
    wanted = sorted(set(shapes))
    for base in _BASES:
        for threads in (num_threads, 1):
            agreeing = set(_COUNTS)
            for out_features, in_features in wanted:
                agreeing &= _agreeing(out_features, in_features, base, threads)
            if agreeing:
                return SafeRows(tuple(sorted(agreeing)), threads)
    raise AssertionError("one row computed by one thread differs from itself")


def mixed_numbers(*shape: int) -> torch.Tensor:
    """Numbers in [-0.5, 0.5) without a pattern that a product could hide in; quick to make."""
    size = math.prod(shape)
    few = torch.rand(10007, generator=torch.Generator().manual_seed(0)) - 0.5
    return few.repeat(size // len(few) + 1)[:size].view(shape)


@lru_cache(maxsize=256)
def _agreeing(out_features: int, in_features: int, base: int, num_threads: int) -> frozenset[int]:
    """Row counts whose bits equal those of `base` rows and one thread; none if base rows notice their place."""
    x = mixed_numbers(_COUNTS[-1], in_features)
    matrix = mixed_numbers(out_features, in_features)

    def product(rows: torch.Tensor) -> torch.Tensor:
        out = torch.empty(rows.shape[0], out_features)
        multiply(rows, matrix, out)
        return out

    with torch_threads(1):
        expected = torch.cat([product(rows) for rows in x.split(base)])
        moved = product(x[:base].roll(1, 0))
    if not torch.equal(moved, expected[:base].roll(1, 0)):
        return frozenset()
    with torch_threads(num_threads):
        return frozenset(count for count in _COUNTS if torch.equal(product(x[:count]), expected[:count]))
