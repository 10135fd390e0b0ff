"""Products of float weights, and what an epilogue makes of any product."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.kernels.native import _native
from support_native_products import (
    assert_same_bits,
    assert_within_rounding,
    draw_codes,
    draw_rows,
    exact_rows,
    product,
)

pytestmark = pytest.mark.usefixtures("level")

seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(["float32", "bfloat16"])
ACTIVATIONS = ["silu", "gelu_pytorch_tanh", "gelu", "relu"]


def packed(dtype: str, rows: np.ndarray, *, glu: bool = False) -> _native.LinearWeight:
    weight = _native.LinearWeight.of_floats(dtype, *rows.shape, glu=glu)
    weight.put_floats(0, rows)
    return weight


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


@settings(max_examples=60)
@given(dtypes, st.integers(1, 17), st.integers(1, 150), st.integers(1, 70), seeds)
def test_products_are_within_one_rounding_a_term(dtype: str, m: int, n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, x = packed(dtype, draw(rng, n, k)), draw(rng, m, k)
    stored = weight.read(0, n).astype(np.float64)
    assert_within_rounding(product(weight, x, m), x.astype(np.float64), stored, k)


@settings(max_examples=40)
@given(dtypes, st.integers(2, 40), st.integers(1, 200), seeds, st.data())
def test_a_row_has_the_same_bits_in_every_company_range_and_number_of_threads(
    dtype: str, m: int, n: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    weight, x = packed(dtype, draw(rng, n, 45)), draw(rng, m, 45)
    whole = product(weight, x, m)
    first = data.draw(st.integers(0, m - 1))
    last = data.draw(st.integers(first + 1, m))
    some = x[first:last]
    assert_same_bits(product(weight, some, last - first, num_threads=2), whole[first:last])
    cut = data.draw(st.integers(0, weight.num_panels))
    left = product(weight, some, last - first, panels=(0, cut))
    right = product(weight, some, last - first, panels=(cut, weight.num_panels))
    assert_same_bits(np.where(np.isnan(left), right, left), whole[first:last])


@settings(max_examples=30)
@given(st.integers(1, 35), st.integers(1, 150), seeds)
def test_adding_is_the_product_rounded_and_then_added(m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, x, before = packed("float32", draw(rng, n, 33)), draw(rng, m, 33), draw(rng, m, n)
    after = before.copy()
    _native.multiply(weight, x, after, add=True, begin=0, end=weight.num_panels, num_threads=1)
    assert_same_bits(after, before + product(weight, x, m))


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 150), seeds)
def test_a_bias_is_added_to_its_own_column(m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, bias, x = draw(rng, n, 8), draw(rng, n), draw(rng, m, 8)
    weight = _native.LinearWeight.of_floats("float32", n, 8, bias=True)
    weight.put_floats(0, rows)
    weight.put_bias(bias)
    assert_same_bits(product(weight, x, m), product(packed("float32", rows), x, m) + bias)


def gate_of(name: str, x: np.ndarray) -> np.ndarray:
    """In float64."""
    with np.errstate(over="ignore"):
        if name == "silu":
            return x / (1 + np.exp(-x))
        if name == "relu":
            return np.maximum(x, 0)
        if name == "gelu":
            return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(max_examples=25)
@given(st.integers(1, 35), st.integers(1, 100), seeds)
def test_gates_multiply_their_own_rows(name: str, m: int, half: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, x = draw(rng, 2 * half, 24), draw(rng, m, 24)
    plain = product(packed("float32", rows), x, m).astype(np.float64)
    out = np.empty((m, half), np.float32)
    _native.multiply_activated(
        packed("float32", rows, glu=True), x, out, activation=name, bits=8, num_threads=2
    )
    expected = gate_of(name, plain[:, :half]) * plain[:, half:]
    # Where an exact GELU is nearly zero it is x / 2 times what rounding leaves of 1 - 1, not right relative to itself.
    nearly_zero = 2.5e-7 * np.maximum(2, np.abs(plain[:, :half])) * np.abs(plain[:, half:])
    tolerance = 1e-6 + 2e-6 * np.abs(expected) + nearly_zero
    np.testing.assert_array_less(np.abs(out - expected), tolerance)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_gate_is_right_over_its_whole_range(name: str) -> None:
    values = np.concatenate([np.linspace(-200, 200, 4001), [0.0, 1e-20, -1e-20, 1e30, -1e30]])
    rows = np.array([[1, 0], [0, 1]], np.float32)
    x = np.stack([values.astype(np.float32), np.ones(len(values), np.float32)], axis=1)
    out = np.empty((len(values), 1), np.float32)
    _native.multiply_activated(
        packed("float32", rows, glu=True), x, out, activation=name, bits=8, num_threads=1
    )
    expected = np.where(values < -1e9, 0, gate_of(name, np.maximum(x[:, 0].astype(np.float64), -1e9)))
    np.testing.assert_allclose(out[:, 0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(1, 200), seeds)
def test_an_activation_takes_each_output_by_itself(name: str, m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, x = draw(rng, n, 24), draw(rng, m, 24)
    plain = product(packed("float32", rows), x, m).astype(np.float64)
    out = np.empty((m, n), np.float32)
    emitted = _native.multiply_activated(
        packed("float32", rows), x, out, activation=name, bits=8, num_threads=2
    )
    np.testing.assert_allclose(out, gate_of(name, plain), rtol=2e-6, atol=1e-6)
    assert (emitted is None) == (n % 32 != 0)
    if emitted is not None:
        np.testing.assert_array_equal(emitted.codes, _native.QuantisedRows.of_floats(out, bits=8).codes)


@pytest.mark.parametrize("bits", [8, 16])
def test_what_a_gate_lets_through_is_quantised_as_it_would_be_afterwards(bits: int) -> None:
    rng = np.random.default_rng(3)
    codes = draw_codes(rng, (192, 64))
    x = _native.QuantisedRows.of_codes(*draw_rows(rng, 35, 64), bits=16)
    out = np.empty((35, 96), np.float32)
    emitted = _native.multiply_activated(
        codes.packed(glu=True), x, out, activation="silu", bits=bits, num_threads=2
    )
    afterwards = _native.QuantisedRows.of_floats(out, bits=bits)
    for name in ("codes", "scales", "sums32", "sums16"):
        np.testing.assert_array_equal(getattr(emitted, name), getattr(afterwards, name))


def test_gate_and_up_of_quantised_weights_are_the_plain_rows() -> None:
    rng = np.random.default_rng(4)
    codes = draw_codes(rng, (140, 64), 4, 32, 8)
    rows, scales = draw_rows(rng, 3, 64)
    x = _native.QuantisedRows.of_codes(rows, scales, bits=8)
    out = np.empty((3, 70), np.float32)
    emitted = _native.multiply_activated(
        codes.packed(glu=True), x, out, activation="silu", bits=8, num_threads=1
    )
    plain = exact_rows(rows, scales) @ codes.exact().T
    assert emitted is None
    np.testing.assert_allclose(out, gate_of("silu", plain[:, :70]) * plain[:, 70:], rtol=1e-4, atol=1e-3)


def test_what_does_not_fit_together_is_refused_with_the_numbers() -> None:
    weight = packed("float32", np.zeros((6, 8), np.float32))
    out = np.zeros((2, 6), np.float32)
    with pytest.raises(ValueError, match=r"\[6, 8\] is given rows of 9"):
        product(weight, np.zeros((2, 9), np.float32), 2)
    with pytest.raises(ValueError, match="activations of the other kind"):
        product(weight, _native.QuantisedRows.of_floats(np.zeros((2, 32), np.float32), bits=8), 2)
    with pytest.raises(ValueError, match="there are 1 panels"):
        product(weight, np.zeros((2, 8), np.float32), 2, panels=(0, 2))
    with pytest.raises(ValueError, match="rows of the output: expected 3, found 2"):
        product(weight, np.zeros((3, 8), np.float32), 2)
    with pytest.raises(ValueError, match="packed together and gated"):
        product(packed("float32", np.zeros((6, 8), np.float32), glu=True), np.zeros((2, 8), np.float32), 2)
    with pytest.raises(ValueError, match="not tanh"):
        _native.multiply_activated(
            weight, np.zeros((2, 8), np.float32), out, activation="tanh", bits=8, num_threads=1
        )
