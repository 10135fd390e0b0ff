"""Weights that are rounded while they are packed: how far they may move, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.kernels.native import _native
from support_native_products import assert_same_bits, product

GROUP = 32
LARGEST_HALF = 65504
seeds = st.integers(0, 2**32 - 1)
magnitudes = st.sampled_from([1e-9, 1e-6, 1e-4, 0.02, 1, 300, 20000])
POOL = _native.Pool(2)


def draw(seed: int, num_rows: int, k: int, magnitude: float) -> np.ndarray:
    """Groups of different spread and middle; some constant, some zero. Within what halves hold."""
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((num_rows, k // GROUP, GROUP)) * rng.uniform(0, 1, (num_rows, k // GROUP, 1))
    groups += rng.choice([0, 0, 0.5, -2], (num_rows, k // GROUP, 1))
    groups[rng.random((num_rows, k // GROUP)) < 0.1] *= 0
    groups[rng.random((num_rows, k // GROUP)) < 0.1] = magnitude / 3
    return (
        (groups * (magnitude / 4)).clip(-LARGEST_HALF, LARGEST_HALF).reshape(num_rows, k).astype(np.float32)
    )


def rounded(quantization: str, rows: np.ndarray, kind: str = "F32", pool: _native.Pool = POOL) -> np.ndarray:
    """What the packed rows stand for."""
    weight = _native.LinearWeight.of_rounded(quantization, *rows.shape)
    weight.put_stored(pool, 0, kind, stored(rows, kind))
    return weight.read(0, len(rows))


def stored(rows: np.ndarray, kind: str) -> np.ndarray:
    """The bytes of numbers that the kind holds exactly."""
    if kind == "BF16":
        return (rows.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return rows.astype({"F32": np.float32, "F16": np.float16}[kind]).view(np.uint8)


def by_groups(rows: np.ndarray) -> np.ndarray:
    return rows.astype(np.float64).reshape(len(rows), -1, GROUP)


@settings(max_examples=60)
@given(seeds, st.integers(1, 70), st.integers(1, 5), magnitudes)
def test_w8_is_within_half_a_step_of_each_number(
    seed: int, num_rows: int, num_groups: int, magnitude: float
) -> None:
    rows = draw(seed, num_rows, num_groups * GROUP, magnitude)
    exact = by_groups(rows)
    # A scale is rounded up to a half: by 2^-10 of itself at most, or to the next of the smallest halves.
    step = np.abs(exact).max(-1, keepdims=True) / 127 * (1 + 2**-10) + 2**-24
    assert np.all(np.abs(by_groups(rounded("w8", rows)) - exact) <= step / 2 * (1 + 1e-6))


@settings(max_examples=60)
@given(seeds, st.integers(1, 70), st.integers(1, 5), magnitudes)
def test_w4_errs_no_more_than_a_plain_grid_from_the_lowest_to_the_highest(
    seed: int, num_rows: int, num_groups: int, magnitude: float
) -> None:
    rows = draw(seed, num_rows, num_groups * GROUP, magnitude)
    exact = by_groups(rows)
    lowest, highest = exact.min(-1, keepdims=True), exact.max(-1, keepdims=True)
    minimum = lowest.astype(np.float16).astype(np.float64)
    scale = ((highest - lowest) / 15).astype(np.float16).astype(np.float64)
    steps = np.divide(exact - minimum, scale, out=np.zeros_like(exact), where=scale > 0)
    plain = ((scale * steps.round().clip(0, 15) + minimum - exact) ** 2).sum(-1)
    found = ((by_groups(rounded("w4", rows)) - exact) ** 2).sum(-1)
    # In float32 two errors that differ in their last places may come in either order.
    slack = 1e-5 * plain + GROUP * (np.abs(exact).max(-1) * 2**-20) ** 2
    assert np.all(found <= plain + slack)


def test_on_normal_numbers_w8_errs_as_its_steps_do_and_w4_less() -> None:
    rows = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    groups = by_groups(rows)
    steps = {"w8": np.abs(groups).max(-1) / 127, "w4": (groups.max(-1) - groups.min(-1)) / 15}
    ratios = {}
    for quantization, step in steps.items():
        error = by_groups(rounded(quantization, rows)) - groups
        ratios[quantization] = np.sqrt((error**2).mean() / (step**2 / 12).mean())
    assert 0.97 < ratios["w8"] < 1.01
    assert 0.85 < ratios["w4"] < 0.95


@settings(max_examples=20)
@given(seeds, st.sampled_from(["w8", "w4"]), st.sampled_from(["F16", "BF16"]), st.integers(1, 5))
def test_the_same_numbers_become_the_same_however_stored_and_by_however_many_threads(
    seed: int, quantization: str, kind: str, num_threads: int
) -> None:
    rows = draw(seed, 67, 96, 1)
    rows = rows.astype(np.float16).astype(np.float32) if kind == "F16" else rows
    rows = (rows.view(np.uint32) & 0xFFFF0000).view(np.float32)
    expected = rounded(quantization, rows)
    assert_same_bits(rounded(quantization, rows, kind, _native.Pool(num_threads)), expected)


@settings(max_examples=20)
@given(seeds, st.integers(1, 70), st.integers(1, 40), st.booleans(), st.sampled_from(["F16", "BF16", "F32"]))
def test_numbers_in_their_own_format_stay_bit_for_bit(
    seed: int, half: int, k: int, glu: bool, kind: str
) -> None:
    num_bytes = 4 if kind == "F32" else 2
    raw = np.random.default_rng(seed).integers(0, 256, (half * 2, k * num_bytes), np.uint8)
    dtype = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}[kind]
    bits = raw.view(f"u{num_bytes}")
    exponent = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000}[kind]
    bits[bits & exponent == exponent] ^= 1 << exponent.bit_length() - 2  # of what is not finite
    weight = _native.LinearWeight.of_floats(dtype, half * 2, k, glu=glu)
    weight.put_stored(POOL, 0, kind, raw)
    found = weight.read(0, half * 2)
    if kind == "F16":
        np.testing.assert_array_equal(found, raw.view(np.float16).astype(np.float32))
    else:
        bits = raw.view(np.uint32) if kind == "F32" else raw.view(np.uint16).astype(np.uint32) << 16
        np.testing.assert_array_equal(found.view(np.uint32), bits)


@settings(max_examples=20)
@given(seeds, st.integers(1, 70), st.integers(1, 40), st.integers(1, 20))
def test_a_product_with_halves_is_that_with_the_same_numbers_in_float32(
    seed: int, n: int, k: int, m: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, k)).astype(np.float16).astype(np.float32)
    x = rng.standard_normal((m, k)).astype(np.float32)
    weights = []
    for dtype in ("float16", "float32"):
        weights.append(_native.LinearWeight.of_floats(dtype, n, k))
        weights[-1].put_stored(POOL, 0, "F32", rows.view(np.uint8))
    assert_same_bits(product(weights[0], x, m), product(weights[1], x, m))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 65520.0, -1e9])
@pytest.mark.parametrize("form", ["w8", "w4", "float16"])
def test_numbers_beyond_a_form_are_refused_with_their_place(form: str, bad: float) -> None:
    rows = np.zeros((40, 96), np.float32)
    rows[37, 71] = rows[39, 2] = bad
    make = _native.LinearWeight.of_floats if form == "float16" else _native.LinearWeight.of_rounded
    shown = {np.nan: "nan", np.inf: "inf", -np.inf: "-inf", 65520.0: "65520", -1e9: r"-1e\+09"}[bad]
    with pytest.raises(ValueError, match=f"number 71 of row 37 is {shown}; only finite numbers up to 65504"):
        make(form, 40, 96).put_stored(POOL, 0, "F32", rows.view(np.uint8))


@pytest.mark.parametrize("form", ["w8", "w4", "float16"])
def test_the_largest_half_is_within_every_form(form: str) -> None:
    rows = np.full((1, 32), -LARGEST_HALF, np.float32)
    rows[0, 0] = LARGEST_HALF
    make = _native.LinearWeight.of_floats if form == "float16" else _native.LinearWeight.of_rounded
    weight = make(form, 1, 32)
    weight.put_stored(POOL, 0, "F32", rows.view(np.uint8))
    np.testing.assert_allclose(weight.read(0, 1), rows, rtol=2**-9)


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    weight = _native.LinearWeight.of_rounded("w8", 4, 64)
    with pytest.raises(ValueError, match="bytes in a row: expected 128, found 256"):
        weight.put_stored(POOL, 0, "F16", np.zeros((1, 256), np.uint8))
    with pytest.raises(ValueError, match="2 rows from 3 on are not within the 4"):
        weight.put_stored(POOL, 3, "F32", np.zeros((2, 256), np.uint8))
    with pytest.raises(ValueError, match="F32, F16 or BF16, not F64"):
        weight.put_stored(POOL, 0, "F64", np.zeros((1, 512), np.uint8))
    for stored, k in (("Q4_0", 64), ("Q5_1", 64), ("Q6_K", 256)):
        with pytest.raises(ValueError, match="does not take numbers to be rounded"):
            _native.LinearWeight.of_blocks(stored, 1, k).put_stored(
                POOL, 0, "F16", np.zeros((1, 2 * k), np.uint8)
            )
    with pytest.raises(ValueError, match="rounded to w8 or w4, not to w2"):
        _native.LinearWeight.of_rounded("w2", 4, 64)
    with pytest.raises(ValueError, match="no multiple of 32"):
        _native.LinearWeight.of_rounded("w4", 4, 40)
