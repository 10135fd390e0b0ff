"""The order of tokens: value first, then the lower id."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.sampling.order import largest, rank

# few distinct values, so that ties are the rule
VALUES = st.lists(st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.5, 3.0]), min_size=1, max_size=40).map(
    lambda values: np.array(values, dtype=np.float32)
)


def in_order(values: np.ndarray) -> list[int]:
    return sorted(range(len(values)), key=lambda i: (-values[i], i))


@given(values=VALUES, count=st.integers(0, 50))
def test_largest_is_the_head_of_the_full_order(values, count):
    assert largest(values, count).tolist() == in_order(values)[:count]


@given(values=VALUES)
def test_rank_is_the_place_in_the_full_order(values):
    assert [rank(values, i) for i in in_order(values)] == list(range(1, len(values) + 1))


def test_largest_of_a_vocabulary_agrees_with_sorting_it():
    values = (
        np.random.default_rng(5).standard_normal(49_152).astype(np.float16).astype(np.float32)
    )  # ties abound
    for count in (1, 20, 1000, 49_151):
        assert largest(values, count).tolist() == in_order(values)[:count]


@pytest.mark.parametrize("count", [0, -1])
def test_the_largest_none_are_none(count):
    assert largest(np.array([1.0, 2.0]), count).size == 0
