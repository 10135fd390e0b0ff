"""Products of quantised weights: integers exact, floats within the roundings that the order of summing has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noria.kernels.native import _native
from support_native_products import (
    Codes,
    assert_same_bits,
    assert_within_rounding,
    draw_codes,
    draw_rows,
    exact_rows,
    product,
)

pytestmark = pytest.mark.usefixtures("level")

FORMATS = [
    (bits, group, zero)
    for bits in (4, 6, 8)
    for group in (16, 32)
    for zero in sorted({0, 8, 2 ** (bits - 1)})
]
# Every code takes rows in shorts; codes of more than 6 bits take rows in bytes where a level multiplies them exactly.
CASES = [(form, row_bits) for form in FORMATS for row_bits in (8, 16)]
cases = st.sampled_from(CASES)
seeds = st.integers(0, 2**32 - 1)


def summed_in_order(integers: np.ndarray) -> np.ndarray:
    """Groups added one after another in float32, as a kernel does where every scale is 1."""
    total = np.zeros(integers.shape[:2], np.float32)
    for group in range(integers.shape[2]):
        total += integers[:, :, group].astype(np.float32)
    return total


def with_unit_scales(codes: np.ndarray, bits: int, group: int, zero: int) -> Codes:
    shape = (len(codes), codes.shape[1] // group)
    minima = np.zeros(shape, np.float32) if zero == 0 else None
    return Codes(bits, group, zero, codes, np.ones(shape, np.float32), minima)


def takes(weight: Codes, row_bits: int) -> bool:
    """Whether the level in use multiplies such weights with such rows."""
    return row_bits == 16 or weight.packed().row_bits() == 8


def integer_product(weight: Codes, rows: np.ndarray, row_bits: int) -> np.ndarray:
    scales = np.ones((len(rows), rows.shape[1] // 32), np.float32)
    x = _native.QuantisedRows.of_codes(rows, scales, bits=row_bits)
    return product(weight.packed(), x, len(rows))


@settings(max_examples=60)
@given(cases, st.integers(1, 17), st.integers(1, 150), st.integers(1, 6).map(lambda units: units * 32), seeds)
def test_integers_are_exact_for_every_shape(
    case: tuple[tuple[int, int, int], int], m: int, n: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    (bits, group, zero), row_bits = case
    weight = with_unit_scales(rng.integers(0, 2**bits, (n, k), np.uint8), bits, group, zero)
    assume(takes(weight, row_bits))
    rows = rng.integers(-(2 ** (row_bits - 1)), 2 ** (row_bits - 1), (m, k), np.int16)
    assert_same_bits(integer_product(weight, rows, row_bits), summed_in_order(weight.integers(rows)))


@pytest.mark.parametrize("k", [32, 576, 32768])
@pytest.mark.parametrize("row_code", [-1, -1 + 1 / 128, 1])
@pytest.mark.parametrize("case", CASES)
def test_integers_are_exact_at_the_ends_of_the_range(
    case: tuple[tuple[int, int, int], int], row_code: float, k: int
) -> None:
    (bits, group, zero), row_bits = case
    ends = np.array([0, 2**bits - 1, 1], np.uint8)
    weight = with_unit_scales(np.repeat(ends[:, None], k, axis=1), bits, group, zero)
    if not takes(weight, row_bits):
        with pytest.raises(ValueError, match="takes activations of 16 bits"):
            integer_product(weight, np.zeros((1, k), np.int16), row_bits)
        return
    code = min(round(row_code * 2 ** (row_bits - 1)), 2 ** (row_bits - 1) - 1)
    rows = np.full((5, k), code, np.int16)
    assert_same_bits(integer_product(weight, rows, row_bits), summed_in_order(weight.integers(rows)))


@settings(max_examples=60)
@given(
    cases, st.integers(1, 17), st.integers(1, 150), st.integers(1, 20).map(lambda units: units * 32), seeds
)
def test_products_are_those_of_the_dequantised_operands(
    case: tuple[tuple[int, int, int], int], m: int, n: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    (bits, group, zero), row_bits = case
    weight = draw_codes(rng, (n, k), bits, group, zero)
    assume(takes(weight, row_bits))
    codes, scales = draw_rows(rng, m, k, row_bits)
    found = product(weight.packed(), _native.QuantisedRows.of_codes(codes, scales, bits=row_bits), m)
    # A group's product is not the sum of its terms' magnitudes where a zero or minimum cancels: bound by all parts.
    parts = np.repeat(weight.scales.astype(np.float64), group, axis=1) * (weight.codes + float(zero))
    if weight.minima is not None:
        parts += np.abs(np.repeat(weight.minima.astype(np.float64), group, axis=1))
    x = exact_rows(codes, scales)
    bound = (2 * k // group + 4) * 2.0**-24 * (np.abs(x) @ parts.T)
    assert np.all(np.abs(found - x @ weight.exact().T) <= bound)


@settings(max_examples=40)
@given(cases, st.integers(2, 60), st.integers(1, 200), st.sampled_from([32, 96, 1600]), seeds, st.data())
def test_a_row_has_the_same_bits_in_every_company_range_and_number_of_threads(
    case: tuple[tuple[int, int, int], int], m: int, n: int, k: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    (bits, group, zero), row_bits = case
    drawn = draw_codes(rng, (n, k), bits, group, zero)
    assume(takes(drawn, row_bits))
    weight = drawn.packed()
    codes, scales = draw_rows(rng, m, k, row_bits)
    whole = product(weight, _native.QuantisedRows.of_codes(codes, scales, bits=row_bits), m)
    first = data.draw(st.integers(0, m - 1))
    last = data.draw(st.integers(first + 1, m))
    some = _native.QuantisedRows.of_codes(codes[first:last], scales[first:last], bits=row_bits)
    assert_same_bits(product(weight, some, last - first, num_threads=2), whole[first:last])
    cut = data.draw(st.integers(0, weight.num_panels))
    left = product(weight, some, last - first, panels=(0, cut))
    right = product(weight, some, last - first, panels=(cut, weight.num_panels))
    assert_same_bits(np.where(np.isnan(left), right, left), whole[first:last])


def test_a_group_that_is_not_finite_spoils_its_row_alone() -> None:
    rng = np.random.default_rng(0)
    weight = draw_codes(rng, (70, 64))
    codes, scales = draw_rows(rng, 3, 64)
    scales[1, 1] = np.nan
    found = product(weight.packed(), _native.QuantisedRows.of_codes(codes, scales, bits=16), 3)
    assert np.isnan(found).any(axis=1).tolist() == [False, True, False]
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("num_bits", [4, 6, 8])
def test_float_sums_of_long_rows_stay_within_their_roundings(num_bits: int) -> None:
    rng = np.random.default_rng(1)
    weight = draw_codes(rng, (65, 8192), num_bits, 32, 2 ** (num_bits - 1))
    codes, scales = draw_rows(rng, 2, 8192)
    found = product(
        weight.packed(), _native.QuantisedRows.of_codes(codes, scales, bits=weight.packed().row_bits()), 2
    )
    assert_within_rounding(found, exact_rows(codes, scales), weight.exact(), 8192 // 32 + 4)
