"""Penalties with kept counts against penalties computed anew from the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.sampling.params import SamplingParams
from noria.sampling.penalties import Penalties

VOCAB = 300
IDS = st.lists(st.integers(0, VOCAB - 1), max_size=200)
PARAMS = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.6]),
    presence_penalty=st.sampled_from([0.0, 1.5, -0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.4, -2.0]),
)
LOGITS = np.random.default_rng(8).standard_normal(VOCAB).astype(np.float32)


def plainly_penalised(params: SamplingParams, prompt: list[int], outputs: list[int]) -> list[float]:
    result = [float(x) for x in LOGITS]
    for i in set(prompt) | set(outputs):
        result[i] = (
            result[i] / params.repetition_penalty if result[i] > 0 else result[i] * params.repetition_penalty
        )
    for i in set(outputs):
        result[i] -= params.frequency_penalty * outputs.count(i) + params.presence_penalty
    return result


@given(params=PARAMS, prompt=IDS, outputs=IDS, cut=st.integers(0, 200))
def test_counts_kept_from_step_to_step_equal_counts_taken_anew(params, prompt, outputs, cut):
    penalties = Penalties(params, prompt, outputs[:cut])
    for token_id in outputs[cut:]:
        penalties.append(token_id)
    logits = LOGITS.copy()
    penalties.apply(logits)
    assert logits == pytest.approx(plainly_penalised(params, prompt, outputs), rel=1e-6)


@pytest.mark.parametrize("repetition", [1e-300, 1e300])
def test_a_penalty_beyond_float32_makes_no_nan(repetition):
    logits = np.array([0.0, 2.0, -2.0, -np.inf, np.inf], dtype=np.float32)
    penalties = Penalties(SamplingParams(repetition_penalty=repetition), [0, 1, 2, 3], [4])
    with np.errstate(all="raise", under="ignore"):
        penalties.apply(logits)
    assert not np.isnan(logits).any()
    assert (logits[1], logits[2]) == ((np.inf, 0.0) if repetition < 1 else (0.0, -np.inf))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": 0.1}, True),
        ({"frequency_penalty": -0.1}, True),
    ],
)
def test_neutral_penalties_are_not_kept_at_all(asked, expected):
    assert Penalties.are_asked_by(SamplingParams(**asked)) is expected
