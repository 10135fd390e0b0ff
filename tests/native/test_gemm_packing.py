"""What is packed comes out again, bit for bit, from every kind of weight and every type of block."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.kernels.native import _native
from support_native_products import assert_same_bits, draw_codes

HALF_OFFSETS = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}  # else 0
TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
seeds = st.integers(0, 2**32 - 1)


def finite_halves(rng: np.random.Generator, count: int) -> np.ndarray:
    """[count, 2] bytes: any half that is finite, subnormal ones and both zeros among them."""
    bits = rng.integers(0, 1 << 16, count, np.uint16)
    bits[(bits & 0x7C00) == 0x7C00] &= 0x83FF
    return bits.view(np.uint8).reshape(count, 2)


def draw_blocks(rng: np.random.Generator, name: str, num_rows: int, num_blocks: int) -> np.ndarray:
    """[num_rows, bytes of num_blocks blocks]: every byte at random, scales finite."""
    _, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (num_rows * num_blocks, num_bytes), np.uint8)
    for offset in HALF_OFFSETS.get(name, (0,)):
        blocks[:, offset : offset + 2] = finite_halves(rng, len(blocks))
    return blocks.reshape(num_rows, -1)


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=25)
@given(st.integers(1, 140), st.integers(1, 5), st.booleans(), seeds)
def test_blocks_unpack_to_what_the_format_defines(
    name: str, num_rows: int, num_blocks: int, glu: bool, seed: int
) -> None:
    kind = gguf.GGMLQuantizationType[name]
    rows = draw_blocks(np.random.default_rng(seed), name, num_rows * 2, num_blocks)
    k = num_blocks * gguf.GGML_QUANT_SIZES[kind][0]
    weight = _native.LinearWeight.of_blocks(name, num_rows * 2, k, glu=glu)
    weight.put_blocks(0, name, rows)
    assert_same_bits(weight.read(0, num_rows * 2), dequantize(rows, kind))


@settings(max_examples=25)
@given(st.integers(1, 70), st.integers(1, 40), st.booleans(), seeds)
def test_float32_comes_out_as_it_went_in(half: int, k: int, glu: bool, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 1 << 32, (half * 2, k), np.uint32)
    weight = _native.LinearWeight.of_floats("float32", half * 2, k, glu=glu)
    weight.put_floats(0, bits.view(np.float32))
    np.testing.assert_array_equal(weight.read(0, half * 2).view(np.uint32), bits)


@settings(max_examples=25)
@given(st.integers(1, 40), seeds)
def test_bfloat16_is_rounded_to_the_nearest_and_ties_to_even(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 0x7F7F0000, (3, k), np.uint32)
    bits[1] = (bits[1] & 0xFFFF0000) | 0x8000
    bits |= rng.integers(0, 2, (3, k), np.uint32) << 31
    weight = _native.LinearWeight.of_floats("bfloat16", 3, k)
    weight.put_floats(0, bits.view(np.float32))
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    np.testing.assert_array_equal(weight.read(0, 3).view(np.uint32), rounded.astype(np.uint32))


def test_bfloat16_keeps_what_is_not_finite() -> None:
    odd = np.array([[np.inf, -np.inf, np.nan, 3.4e38, 1e-45, -0.0]], np.float32)
    odd = np.concatenate([odd, np.array([[0x7F800001]], np.uint32).view(np.float32)], axis=1)
    weight = _native.LinearWeight.of_floats("bfloat16", 1, odd.shape[1])
    weight.put_floats(0, odd)
    found = weight.read(0, 1)[0]
    assert found[:2].tolist() == [np.inf, -np.inf]
    assert np.isnan(found[[2, 6]]).all()
    assert found[3] == np.inf
    assert found[4:6].tolist() == [0, 0] and np.signbit(found[5])


@settings(max_examples=30)
@given(
    st.sampled_from([(bits, group, zero) for bits in (4, 5, 8) for group in (16, 32) for zero in (0, 8)]),
    seeds,
)
def test_codes_come_out_as_they_went_in(form: tuple[int, int, int], seed: int) -> None:
    bits, group, zero = form
    codes = draw_codes(np.random.default_rng(seed), (67, 96), bits, group, zero)
    scales = np.repeat(codes.scales, group, axis=1)
    expected = scales * (codes.codes.astype(np.float32) - np.float32(zero))
    if codes.minima is not None:
        expected += np.repeat(codes.minima, group, axis=1)
    assert_same_bits(codes.packed().read(0, 67), expected)


def test_rows_may_be_put_in_any_pieces() -> None:
    rows = np.random.default_rng(0).normal(size=(150, 20)).astype(np.float32)
    weight = _native.LinearWeight.of_floats("float32", 150, 20)
    for first in (149, 64, 0, 63, 100):
        last = {149: 150, 64: 100, 0: 63, 63: 64, 100: 149}[first]
        weight.put_floats(first, rows[first:last])
    assert_same_bits(weight.read(0, 150), rows)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _native.LinearWeight.of_floats("int8", 4, 4), "float32, bfloat16 or float16, not int8"),
        (lambda: _native.LinearWeight.of_floats("float32", 0, 4), r"\[0, 4\] holds nothing"),
        (
            lambda: _native.LinearWeight.of_floats("float32", 5, 4, glu=True),
            r"\[5, 4\] is not a gate and an up",
        ),
        (lambda: _native.LinearWeight.of_blocks("Q3_K", 4, 256), "'Q3_K'; there are Q4_0, Q4_1"),
        (lambda: _native.LinearWeight.of_blocks("Q4_K", 4, 300), "last whole block: expected 0, found 44"),
        (lambda: _native.LinearWeight.of_codes(8, 32, 128, 4, 40), "no multiple of 32"),
        (lambda: _native.LinearWeight.of_codes(8, 64, 128, 4, 64), "16 or 32 numbers, not 64"),
        (lambda: _native.LinearWeight.of_codes(8, 32, 100, 4, 64), "power of two up to 128"),
        (lambda: _native.LinearWeight.of_codes(9, 32, 16, 4, 64), "codes of 9 bits are not for weights of 8"),
    ],
)
def test_what_cannot_be_packed_is_refused_with_the_numbers(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_rows_that_do_not_fit_are_refused_with_the_numbers() -> None:
    weight = _native.LinearWeight.of_blocks("Q8_0", 4, 64)
    with pytest.raises(ValueError, match="bytes in a row: expected 68, found 34"):
        weight.put_blocks(0, "Q8_0", np.zeros((1, 34), np.uint8))
    with pytest.raises(ValueError, match="does not take Q4_0"):
        weight.put_blocks(0, "Q4_0", np.zeros((1, 36), np.uint8))
    with pytest.raises(ValueError, match="2 rows from 3 on are not within the 4"):
        weight.put_blocks(3, "Q8_0", np.zeros((2, 68), np.uint8))
    with pytest.raises(ValueError, match="does not take floating point numbers"):
        weight.put_floats(0, np.zeros((1, 64), np.float32))
    with pytest.raises(ValueError, match="does not take a bias"):
        weight.put_bias(np.zeros(4, np.float32))
    small = _native.LinearWeight.of_codes(4, 32, 8, 1, 32)
    with pytest.raises(ValueError, match="more than the format's 4 bits"):
        small.put_codes(0, np.full((1, 32), 16, np.uint8), np.ones((1, 1), np.float32))
