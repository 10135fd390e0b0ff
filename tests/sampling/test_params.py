"""Sampling parameters refuse what they cannot mean, naming parameter and range."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from noria.config.errors import RequestError
from noria.sampling.params import MAX_COUNT, SamplingParams

HUGE = 10**6000  # more digits than Python is willing to print

LIMITS = {
    "n": (1, 16384),
    "temperature": (0.0, 1e300),
    "top_k": (-1, MAX_COUNT),
    "top_p": (1e-9, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-9, 1e300),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "seed": (-(2**63), 2**64 - 1),
    "min_tokens": (0, MAX_COUNT),
    "max_tokens": (0, MAX_COUNT),
    "logprobs": (0, MAX_COUNT),
    "prompt_logprobs": (0, MAX_COUNT),
}
BEYOND = {
    "n": (0, 16385),
    "temperature": (-0.1,),
    "top_k": (-2, MAX_COUNT + 1),
    "top_p": (0.0, -0.5, 1.0001),
    "min_p": (-0.1, 1.1),
    "repetition_penalty": (0.0, -1.0),
    "presence_penalty": (-2.1, 2.1),
    "frequency_penalty": (-2.1, 2.1),
    "seed": (-(2**63) - 1, 2**64),
    "min_tokens": (-1,),
    "max_tokens": (-1, MAX_COUNT + 1),
    "logprobs": (-1,),
    "prompt_logprobs": (-1,),
}
NOT_NUMBERS = {
    "nan": math.nan,
    "inf": math.inf,
    "text": "1",
    "bool": True,
    "list": [1],
    "huge": HUGE,
    "-huge": -HUGE,
}
INTEGERS = ("n", "top_k", "seed", "min_tokens", "max_tokens", "logprobs", "prompt_logprobs")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, ends in LIMITS.items() for value in ends]
)
def test_the_ends_of_a_range_are_allowed(name, value):
    others = {"max_tokens": None} if name == "min_tokens" else {}
    assert getattr(SamplingParams(**{name: value}, **others), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BEYOND.items() for value in values]
    + [
        pytest.param(name, value, id=f"{name}-{kind}")
        for name in LIMITS
        for kind, value in NOT_NUMBERS.items()
    ]
    + [(name, 0.5) for name in INTEGERS]
    + [(name, None) for name in LIMITS if name not in ("seed", "max_tokens", "logprobs", "prompt_logprobs")],
)
def test_anything_else_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=f"^{name} must be ") as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", 5),
        ("stop", [""]),
        ("stop", ["a", 1]),
        ("stop_token_ids", 3),
        ("stop_token_ids", "12"),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", [-HUGE]),
        pytest.param("stop_token_ids", -HUGE, id="huge"),
        ("stop", [[HUGE]]),
        ("logit_bias", [1]),
        ("logit_bias", {"5": 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: 100.5}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: True}),
        ("logit_bias", {1: HUGE}),
        ("allowed_token_ids", []),
        ("allowed_token_ids", 3),
        ("allowed_token_ids", [-1]),
        ("allowed_token_ids", ["a"]),
        ("logprob_token_ids", 3),
        ("logprob_token_ids", [-1]),
        ("logprob_token_ids", ["a"]),
        ("bad_words", [""]),
        ("bad_words", [3]),
        ("bad_words", 3),
        ("bad_word_ids", [3]),
        ("bad_word_ids", [[]]),
        ("bad_word_ids", [[-1]]),
        ("logits_processors", len),
        ("logits_processors", [1]),
    ],
)
def test_a_collection_of_the_wrong_things_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=f"^{name} must ") as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize("name", ["include_stop_str_in_output", "ignore_eos", "skip_special_tokens"])
@pytest.mark.parametrize("value", ["false", 0, None])
def test_a_flag_is_true_or_false_and_nothing_like_it(name, value):
    with pytest.raises(RequestError, match=f"^{name} must be true or false, got ") as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


def test_a_range_is_told_in_full():
    with pytest.raises(RequestError, match="max_tokens must be at least 0 and at most 2147483647, got -1"):
        SamplingParams(max_tokens=-1)
    with pytest.raises(RequestError, match=r"top_p must be above 0 and at most 1, got 0\.0"):
        SamplingParams(top_p=0.0)


def test_more_tokens_at_least_than_at_most_are_refused():
    with pytest.raises(RequestError, match=r"min_tokens must not exceed max_tokens \(3\), got 4"):
        SamplingParams(min_tokens=4, max_tokens=3)


def test_lists_are_kept_as_tuples_and_absent_ones_as_empty():
    params = SamplingParams(stop="end", stop_token_ids=[1, 2], logit_bias=None, logits_processors=None)
    assert (params.stop, params.stop_token_ids) == (("end",), (1, 2))
    assert (params.logit_bias, params.logits_processors) == ({}, ())
    masked = SamplingParams(allowed_token_ids=[3], bad_words="end", bad_word_ids=[[1, 2]])
    assert (masked.allowed_token_ids, masked.bad_words, masked.bad_word_ids) == ((3,), ("end",), ((1, 2),))
    assert SamplingParams().allowed_token_ids is None


def test_importing_the_parameters_imports_nothing_heavy():
    code = "import sys, noria.core.plan; print(*sorted({'numpy', 'torch'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == ""
