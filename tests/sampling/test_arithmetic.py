"""Logarithms and weights: close to the exact ones, and the same bits everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.sampling.arithmetic import WEIGHT_BITS, ln, log_of_weights, share_of, weights

ONE = 2**WEIGHT_BITS
WEIGHTS = [3258152910848, 1617950932992, 1991555456, 7060]
LOGARITHMS = ["-0x1.26bb1bbb55515p+1", "0x1.193ea7aad030bp+0", "-0x1.0000000000000p-53"]


@given(st.floats(5e-324, 1.7e308) | st.floats(2**-53, 1 - 2**-53))
def test_a_logarithm_is_within_two_units_in_the_last_place(number):
    found, exact = float(ln(np.array(number))), math.log(number)
    assert abs(found - exact) <= 2 * math.ulp(exact)


@given(st.lists(st.floats(-60, 0, width=32), min_size=1, max_size=40))
def test_a_weight_is_the_exponential_in_whole_units(scaled):
    found = weights(np.array(scaled, dtype=np.float32)).tolist()
    exact = [ONE * math.exp(x) for x in scaled]
    assert all(abs(w - e) <= 3e-7 * e + 0.51 for w, e in zip(found, exact, strict=True))


def test_weights_at_the_ends_are_exact():
    ends = np.array([0.0, -0.0, -1e-30, -31.0, -1e30, -np.inf], dtype=np.float32)
    assert weights(ends).tolist() == [ONE, ONE, ONE, 0, 0, 0]


def test_the_bits_are_those_of_the_recipe():
    assert weights(np.array([-0.3, -1.0, -7.7, -20.25], dtype=np.float32)).tolist() == WEIGHTS
    assert [float(x).hex() for x in ln(np.array([0.1, 3.0, 1 - 2**-53]))] == LOGARITHMS


def test_a_row_of_any_length_has_the_weights_of_its_numbers():
    scaled = -np.random.default_rng(0).random(20_000).astype(np.float32) * 30
    alone = [int(weights(scaled[i : i + 1])[0]) for i in range(0, 20_000, 997)]
    assert weights(scaled)[::997].tolist() == alone


@pytest.mark.parametrize(
    ("total", "share", "expected"), [(10, 0.5, 5), (10, 0.41, 5), (7, 1.0, 7), (1, 5e-324, 1)]
)
def test_a_share_is_rounded_up(total, share, expected):
    assert share_of(total, share) == expected


def test_the_log_of_a_sum_of_weights_is_in_units_of_one():
    assert log_of_weights(ONE) == 0.0
    assert log_of_weights(2 * ONE) == pytest.approx(math.log(2), abs=1e-15)
