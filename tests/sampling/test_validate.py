"""What a model cannot serve is refused by name and range."""

from __future__ import annotations

import pytest

from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams
from noria.sampling.validate import check_against_vocabulary, check_token_ids


@pytest.mark.parametrize(
    ("asked", "param", "message"),
    [
        (
            {"logit_bias": {3: 1.0, 100: 1.0}},
            "logit_bias",
            "logit_bias must hold token ids from 0 to 99, got 100",
        ),
        ({"stop_token_ids": (1, 2**40)}, "stop_token_ids", f"from 0 to 99, got {2**40}"),
        (
            {"logprobs": 0, "logprob_token_ids": (100,)},
            "logprob_token_ids",
            "logprob_token_ids must hold token ids from 0 to 99, got 100",
        ),
        (
            {"logprobs": 0, "logprob_token_ids": (1,) * 21},
            "logprob_token_ids",
            "logprob_token_ids must hold at most 20 token ids, got 21",
        ),
        ({"logprobs": 21}, "logprobs", "logprobs must be at least 0 and at most 20, got 21"),
        (
            {"prompt_logprobs": 21},
            "prompt_logprobs",
            "prompt_logprobs must be at least 0 and at most 20, got 21",
        ),
    ],
)
def test_what_the_model_does_not_have_is_refused(asked, param, message):
    with pytest.raises(RequestError, match=message) as caught:
        check_against_vocabulary(SamplingParams(**asked), vocab_size=100, max_logprobs=20)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"logit_bias": {0: 1.0, 99: -1.0}},
        {"stop_token_ids": (0, 99)},
        {"logprobs": 20, "prompt_logprobs": 0},
    ],
)
def test_what_the_model_has_is_let_through(asked):
    check_against_vocabulary(SamplingParams(**asked), vocab_size=100, max_logprobs=20)


@pytest.mark.parametrize("max_logprobs", [-1, 500])
def test_no_more_alternatives_than_the_vocabulary_has_can_be_asked_for(max_logprobs):
    check_against_vocabulary(SamplingParams(logprobs=100), 100, max_logprobs)
    with pytest.raises(RequestError, match="at most 100, got 101"):
        check_against_vocabulary(SamplingParams(logprobs=101), 100, max_logprobs)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("wrong", [-1, 100, 2**40])
def test_an_id_the_model_does_not_have_is_refused_by_the_name_of_its_field(at, wrong):
    token_ids = [0, 99]
    token_ids.insert(at, wrong)
    with pytest.raises(RequestError, match=f"prompt must hold token ids from 0 to 99, got {wrong}") as caught:
        check_token_ids(token_ids, 100, "prompt")
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("token_ids", [[], [0, 99], (5,)])
def test_the_models_own_tokens_are_let_through(token_ids):
    check_token_ids(token_ids, 100, "prompt")
