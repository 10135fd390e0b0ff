"""Operands of native products, and what the products must be: exact integers, and sums in the stated order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noria.kernels.native import _native

SCALE_GROUP = 32


@dataclass(frozen=True)
class Codes:
    """w = scale * (code - zero), or scale * code + minimum. codes [n, k]; scales, minima [n, k / group]."""

    bits: int
    group: int
    zero: int
    codes: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None

    def packed(self, *, glu: bool = False) -> _native.LinearWeight:
        n, k = self.codes.shape
        weight = _native.LinearWeight.of_codes(self.bits, self.group, self.zero, n, k, glu=glu)
        weight.put_codes(0, self.codes, self.scales, self.minima)
        return weight

    def exact(self) -> np.ndarray:
        """[n, k] float64."""
        scales = np.repeat(self.scales.astype(np.float64), self.group, axis=1)
        numbers = scales * (self.codes.astype(np.float64) - self.zero)
        return numbers if self.minima is None else numbers + np.repeat(self.minima, self.group, axis=1)

    def integers(self, rows: np.ndarray) -> np.ndarray:
        """rows [m, k] int16 -> the products of each group [m, n, k / group] int32."""
        m, n = len(rows), len(self.codes)
        left = rows.astype(np.int32).reshape(m, 1, -1, self.group)
        right = (self.codes.astype(np.int32) - self.zero).reshape(1, n, -1, self.group)
        return (left * right).sum(axis=3, dtype=np.int32)


def draw_codes(
    rng: np.random.Generator, shape: tuple[int, int], bits: int = 8, group: int = 32, zero: int = 128
) -> Codes:
    n, k = shape
    numbers = (n, k // group)
    minima = rng.normal(size=numbers).astype(np.float32) if zero == 0 else None
    scales = rng.uniform(0.1, 2, numbers).astype(np.float32)
    return Codes(bits, group, zero, rng.integers(0, 2**bits, shape, np.uint8), scales, minima)


def draw_rows(
    rng: np.random.Generator, num_rows: int, k: int, bits: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Codes [num_rows, k] int16 of so many bits and scales [num_rows, k / 32] float32."""
    scales = rng.uniform(0.01, 1, (num_rows, k // SCALE_GROUP)).astype(np.float32)
    largest = 2 ** (bits - 1) - 1
    return rng.integers(-largest, largest + 1, (num_rows, k), np.int16), scales


def exact_rows(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return codes.astype(np.float64) * np.repeat(scales.astype(np.float64), SCALE_GROUP, axis=1)


def product(
    weight: _native.LinearWeight,
    x: np.ndarray | _native.QuantisedRows,
    num_rows: int,
    *,
    panels: tuple[int, int] | None = None,
    num_threads: int = 1,
) -> np.ndarray:
    """[num_rows, outputs]; NaN where no panel of the range writes."""
    out = np.full((num_rows, weight.num_outputs), np.nan, np.float32)
    begin, end = panels or (0, weight.num_panels)
    _native.multiply(weight, x, out, add=False, begin=begin, end=end, num_threads=num_threads)
    return out


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def assert_within_rounding(found: np.ndarray, x: np.ndarray, weight: np.ndarray, num_roundings: int) -> None:
    """Of the float64 product of x [m, k] and weight [n, k], by so many float32 roundings of its terms' magnitudes."""
    magnitude = np.abs(x) @ np.abs(weight).T
    bound = num_roundings * 2.0**-24 * magnitude + 1e-30
    assert np.all(np.abs(found - x @ weight.T) <= bound)
