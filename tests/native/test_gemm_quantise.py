"""Activations in integers of 8 or 16 bits: each group of 32 by its own largest magnitude, each row by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.kernels.native import _native

seeds = st.integers(0, 2**32 - 1)
bits = st.sampled_from([8, 16])
shapes = st.tuples(st.integers(1, 9), st.integers(1, 6).map(lambda groups: groups * 32))


def draw(seed: int, shape: tuple[int, int]) -> np.ndarray:
    """Numbers of many sizes, some groups all zero."""
    rng = np.random.default_rng(seed)
    groups = rng.normal(size=(shape[0], shape[1] // 32, 32)) * 10.0 ** rng.uniform(-20, 20, (1, 1, 1))
    groups *= rng.integers(0, 4, (*groups.shape[:2], 1)) > 0
    return groups.reshape(shape).astype(np.float32)


def expected_codes(x: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """codes [m, k / 32, 32] and scales [m, k / 32]. most: the largest code."""
    groups = x.reshape(len(x), -1, 32)
    largest = np.abs(groups).max(axis=2)
    with np.errstate(divide="ignore"):
        factor = np.where(largest > 0, np.float32(most) / largest, np.float32(0))
    return np.rint(groups * factor[:, :, None]).astype(np.int16), largest / np.float32(most)


@settings(max_examples=60)
@given(shapes, seeds, bits)
def test_codes_scales_and_sums_are_as_defined(shape: tuple[int, int], seed: int, num_bits: int) -> None:
    x = draw(seed, shape)
    found = _native.QuantisedRows.of_floats(x, bits=num_bits)
    codes, scales = expected_codes(x, 2 ** (num_bits - 1) - 1)
    np.testing.assert_array_equal(found.codes, codes.reshape(shape))
    np.testing.assert_array_equal(found.scales, scales)
    np.testing.assert_array_equal(found.sums32, scales * codes.sum(axis=2, dtype=np.float32))
    halves = codes.reshape(shape[0], -1, 16).sum(axis=2, dtype=np.float32)
    np.testing.assert_array_equal(found.sums16, np.repeat(scales, 2, axis=1) * halves)


@settings(max_examples=40)
@given(shapes, seeds, bits)
def test_no_number_is_off_by_more_than_half_a_step(shape: tuple[int, int], seed: int, num_bits: int) -> None:
    x = draw(seed, shape)
    found = _native.QuantisedRows.of_floats(x, bits=num_bits)
    scales = np.repeat(found.scales.astype(np.float64), 32, axis=1)
    roundings = 2.0**-22 * np.abs(x)  # of the quotient and the product in float32: they show in 16 bits
    assert np.all(np.abs(found.codes * scales - x) <= scales * 0.50001 + roundings)


@settings(max_examples=40)
@given(shapes, seeds, bits)
def test_normalising_first_is_the_same_as_normalising_and_then_quantising(
    shape: tuple[int, int], seed: int, num_bits: int
) -> None:
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    gamma = np.random.default_rng(seed + 1).normal(size=shape[1]).astype(np.float32)
    for beta in (None, np.flip(gamma).copy()):
        together = _native.QuantisedRows.of_floats(x, gamma, 1e-5, beta, bits=num_bits)
        apart = _native.QuantisedRows.of_floats(_native.normalise(x, gamma, 1e-5, beta), bits=num_bits)
        for name in ("codes", "scales", "sums32"):
            np.testing.assert_array_equal(getattr(together, name), getattr(apart, name))


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 200), seeds)
def test_norms_are_those_of_float64(m: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, gamma = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=k).astype(np.float32)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6) * gamma
    found = _native.normalise(x, gamma, 1e-6)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-12)
    for row in range(m):
        np.testing.assert_array_equal(_native.normalise(x[row : row + 1], gamma, 1e-6)[0], found[row])


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 400), st.sampled_from([0.0, 3.0, -50.0]), seeds)
def test_layer_norms_are_those_of_float64(m: int, k: int, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, 1, size=(m, k)).astype(np.float32)
    gamma, beta = (rng.normal(size=k).astype(np.float32) for _ in range(2))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-3) * gamma + beta
    found = _native.normalise(x, gamma, 1e-3, beta)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * (1 + abs(mean)))
    for row in range(m):
        np.testing.assert_array_equal(_native.normalise(x[row : row + 1], gamma, 1e-3, beta)[0], found[row])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 7, 31])
def test_a_number_that_is_not_finite_makes_its_group_nan_and_no_other(bad: float, at: int) -> None:
    x = np.ones((2, 96), np.float32)
    x[1, 32 + at] = bad
    found = _native.QuantisedRows.of_floats(x, bits=8)
    assert np.isnan(found.scales).tolist() == [[False, False, False], [False, True, False]]
    assert found.codes[1, 32:64].tolist() == [0] * 32
    assert found.codes[0].tolist() == [127] * 96


@pytest.mark.parametrize("tiny", [0.0, -0.0, 1e-45, 9e-31])
def test_groups_too_small_to_divide_by_are_zero(tiny: float) -> None:
    found = _native.QuantisedRows.of_floats(np.full((1, 32), tiny, np.float32), bits=8)
    assert (found.scales.tolist(), found.codes.tolist()) == ([[0.0]], [[0] * 32])


def test_the_largest_numbers_are_kept() -> None:
    largest = np.finfo(np.float32).max
    x = np.zeros((1, 32), np.float32)
    x[0, :2] = [largest, -largest]
    found = _native.QuantisedRows.of_floats(x, bits=8)
    assert found.codes[0, :3].tolist() == [127, -127, 0]
    assert found.scales[0, 0] == largest / np.float32(127)


@pytest.mark.parametrize("k", [0, 1, 31, 33, 80])
def test_rows_that_are_not_whole_groups_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"rows of {k} numbers cannot be quantised"):
        _native.QuantisedRows.of_floats(np.zeros((1, k), np.float32), bits=8)
