"""Log-probabilities against a plain float64 computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from noria.sampling.logprobs import token_logprobs
from noria.sampling.nonfinite import SamplingFault

LOGITS = nps.arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.one_of(st.floats(-60, 60, width=32), st.sampled_from([-math.inf, 0.0, 7.0])),
).filter(lambda logits: (logits > -np.inf).any())


def exact(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - math.log(math.fsum(np.exp(shifted)))


@given(logits=LOGITS, num_top=st.integers(0, 70), choice=st.integers(0, 10**6))
def test_values_rank_and_alternatives_are_those_of_the_exact_log_softmax(logits, num_top, choice):
    token_id = choice % logits.size
    told = token_logprobs(logits, token_id, num_top)
    expected = exact(logits)
    order = sorted(range(logits.size), key=lambda i: (-logits[i], i))
    assert told.token_id == token_id
    assert told.logprob == pytest.approx(expected[token_id], abs=1e-6)
    assert told.rank == order.index(token_id) + 1
    assert [i for i, _ in told.top] == order[:num_top]
    assert [value for _, value in told.top] == pytest.approx(expected[order[:num_top]], abs=1e-6)


def test_a_whole_vocabulary_of_probabilities_sums_to_one():
    logits = (3 * np.random.default_rng(1).standard_normal(151_936)).astype(np.float32)
    told = token_logprobs(logits, 0, logits.size)
    assert math.fsum(math.exp(value) for _, value in told.top) == pytest.approx(1.0, abs=1e-6)


def test_big_logits_do_not_overflow():
    told = token_logprobs(np.array([3e38, 3e38, -3e38], dtype=np.float32), 0, 3)
    assert told.logprob == pytest.approx(math.log(0.5))
    assert told.top[2] == (2, pytest.approx(-6e38))


def test_infinite_logits_share_all_the_probability():
    told = token_logprobs(np.array([1.0, np.inf, 2.0, np.inf], dtype=np.float32), 3, 3)
    assert told.logprob == pytest.approx(math.log(0.5))
    assert told.rank == 2
    assert told.top == ((1, pytest.approx(math.log(0.5))), (3, pytest.approx(math.log(0.5))), (0, -math.inf))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([1.0, np.nan, np.nan], "2 of 3 are NaN, the first at token id 1"),
        ([np.inf, np.nan], "1 of 2 are NaN, the first at token id 1"),
        ([-np.inf, -np.inf], "no token is possible: all 2 logits are -inf"),
    ],
)
def test_logits_that_say_nothing_are_a_fault(logits, message):
    with pytest.raises(SamplingFault, match=message):
        token_logprobs(np.array(logits, dtype=np.float32), 0, 1)


def test_the_logits_are_left_as_they_are():
    logits = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    token_logprobs(logits, 1, 2)
    assert logits.tolist() == [1.0, 2.0, 3.0]
