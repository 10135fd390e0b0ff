"""Temperature, min_p, top_k and top_p against a plain computation in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from noria.sampling.filters import kept_ids, scale
from noria.sampling.params import SamplingParams

# halves between -12 and 12: ties are common and exponentials far enough apart to be told apart in float32
LOGITS = nps.arrays(np.float32, st.integers(1, 80), elements=st.integers(-24, 24).map(lambda half: half / 2))
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    min_p=st.sampled_from([0.0, 0.013, 0.31, 1.0]),
    top_k=st.sampled_from([-1, 0, 1, 3, 20, 1000]),
    top_p=st.sampled_from([1e-6, 0.137, 0.613, 0.9731, 1.0]),
)


def plainly_kept(logits: np.ndarray, params: SamplingParams) -> list[int]:
    weight = {i: math.exp((x - max(logits)) / params.temperature) for i, x in enumerate(logits.astype(float))}
    kept = [i for i in weight if weight[i] >= params.min_p]
    kept.sort(key=lambda i: (-logits[i], i))
    if params.top_k > 0:
        kept = kept[: params.top_k]
    if params.top_p < 1.0:
        target = params.top_p * math.fsum(weight[i] for i in kept)
        count = next(n for n in range(1, len(kept) + 1) if math.fsum(weight[i] for i in kept[:n]) >= target)
        kept = kept[:count]
    return sorted(kept)


@given(logits=LOGITS, params=PARAMS)
def test_the_tokens_kept_are_those_of_the_definition(logits, params):
    kept = kept_ids(scale(logits, params.temperature), params)
    assert list(range(logits.size) if kept is None else kept) == plainly_kept(logits, params)


@pytest.mark.parametrize("top_p", [0.5, 0.999, 0.9999999])
def test_a_nucleus_of_thousands_is_found_whole(top_p):
    logits = np.sort(np.random.default_rng(2).standard_normal(20_000).astype(np.float32))[::-1].copy()
    kept = kept_ids(scale(logits, 1.0), SamplingParams(top_p=top_p))
    shares = np.cumsum(np.exp(logits.astype(np.float64)))
    shares /= shares[-1]
    assert kept.tolist() == list(range(kept.size))  # sorted logits: a nucleus is a prefix
    assert shares[kept.size - 1] >= top_p - 1e-6
    assert shares[kept.size - 2] < top_p + 1e-6


@pytest.mark.parametrize("temperature", [5e-324, 1e-200, 1e-40])
def test_a_temperature_near_zero_leaves_the_highest_alone(temperature):
    scaled = scale(np.array([1.0, 3.0, -np.inf, 3.0, 2.9], dtype=np.float32), temperature)
    assert np.exp(scaled).tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("temperature", [1e20, 1e200, 1.7e308])
def test_a_temperature_near_infinity_makes_possible_tokens_equal_and_no_other_possible(temperature):
    scaled = scale(np.array([1.0, 3.0, -np.inf, -50.0], dtype=np.float32), temperature)
    assert np.exp(scaled).tolist() == [1.0, 1.0, 0.0, 1.0]


def test_a_top_k_of_one_is_the_greedy_choice_even_among_equals():
    logits = np.array([1.0, 5.0, 5.0, 5.0], dtype=np.float32)
    assert kept_ids(scale(logits, 0.5), SamplingParams(top_k=1)).tolist() == [1]


def test_filters_that_keep_everything_cost_nothing():
    assert kept_ids(np.zeros(10, dtype=np.float32), SamplingParams(top_k=10, top_p=1.0, min_p=0.0)) is None
