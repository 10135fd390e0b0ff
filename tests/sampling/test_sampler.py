"""The choice of a token: order of operations, exact distribution, determinism, faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.sampling import random_numbers
from noria.sampling.filters import kept_ids, scale
from noria.sampling.nonfinite import SamplingFault
from noria.sampling.params import SamplingParams
from noria.sampling.sampler import RequestSampler, draw

PROMPT = (3, 1, 3)
INF = math.inf


def sample(logits, params: SamplingParams, outputs=(), seed: int = 0, eos=()) -> int:
    known = [*PROMPT, *outputs]
    sampler = RequestSampler(params, seed, known, len(PROMPT), eos)
    return sampler.sample(np.array(logits, dtype=np.float32))


def greedy(**params) -> SamplingParams:
    return SamplingParams(temperature=0.0, **params)


def test_greedy_takes_the_highest_and_the_lowest_id_among_equals():
    assert sample([1, 7, 7, 7], greedy()) == 1


@given(st.integers(0, 2**64 - 1), st.integers(0, 40))
def test_a_greedy_choice_heeds_neither_seed_nor_position(seed, num_outputs):
    assert sample([1, 7, 9, 2], greedy(), outputs=[0] * num_outputs, seed=seed) == 2


# What a greedy choice is, when the logits of tokens 0..4 are [1, 2, 3, 4, 5], prompt (3, 1, 3), outputs (4, 4, 2)
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, 4),
        ({"presence_penalty": 0.9}, 4),  # 4.1 against 4
        ({"presence_penalty": 1.1}, 3),  # the prompt's tokens are not punished
        ({"frequency_penalty": 0.4}, 4),  # twice 0.4
        ({"frequency_penalty": 0.6}, 3),
        ({"repetition_penalty": 6.0}, 0),  # everything but token 0 was seen
        ({"logit_bias": {0: 4.5}}, 0),
        ({"logit_bias": {4: -100.0, 3: -100.0}}, 2),
        ({"logit_bias": {0: 6.5}, "repetition_penalty": 1.0}, 0),
        ({"logit_bias": {1: 10.0}, "repetition_penalty": 2.0}, 1),  # (2 + 10) / 2: the bias comes first
        ({"logit_bias": {1: 10.0}, "repetition_penalty": 13.0}, 0),  # 12 / 13 < 1
        ({"stop_token_ids": (4,), "min_tokens": 4}, 3),  # three outputs so far
        ({"stop_token_ids": (4,), "min_tokens": 3}, 4),
        ({"stop_token_ids": (4,), "min_tokens": 9, "logit_bias": {4: 100.0}}, 3),
        ({"top_k": 1, "top_p": 0.1, "min_p": 1.0}, 4),
        ({"allowed_token_ids": (2, 0, 2)}, 2),
        ({"allowed_token_ids": (0, 2), "logit_bias": {4: 100.0}}, 2),
        ({"allowed_token_ids": (3, 4), "stop_token_ids": (4,), "min_tokens": 4}, 3),
        ({"bad_word_ids": ((4,), (3,))}, 2),
        ({"bad_word_ids": ((4, 2, 4),)}, 3),  # the output ends with 4, 2
        ({"bad_word_ids": ((4, 4, 2, 4),)}, 3),
        ({"bad_word_ids": ((3, 4, 4, 2, 4),)}, 4),  # the 3 is the prompt's, which is none of the output
        ({"bad_word_ids": ((4, 4),)}, 4),
        ({"bad_word_ids": ((4,),), "logit_bias": {4: 100.0}}, 3),
    ],
)
def test_what_a_greedy_choice_heeds(params, expected):
    assert sample([1, 2, 3, 4, 5], greedy(**params), outputs=(4, 4, 2)) == expected


@pytest.mark.parametrize(("ignore_eos", "expected"), [(False, 1), (True, 2)])
def test_min_tokens_withholds_end_of_sequence_unless_it_ends_nothing(ignore_eos, expected):
    assert sample([1, 2, 3], greedy(min_tokens=1, ignore_eos=ignore_eos), eos=(2,)) == expected
    assert sample([1, 2, 3], greedy(min_tokens=1, ignore_eos=ignore_eos), outputs=(0,), eos=(2,)) == 2


def test_logits_processors_see_the_text_and_the_penalised_logits_in_turn():
    seen = []

    def look(prompt_ids, output_ids, logits):
        seen.append((tuple(prompt_ids), tuple(output_ids), logits.tolist()))
        logits[0] = 50
        return logits

    def double(prompt_ids, output_ids, logits):
        seen.append(logits.tolist())
        return [2 * x for x in logits]

    params = greedy(presence_penalty=1.0, logit_bias={0: 0.5}, logits_processors=(look, double))
    assert sample([1, 2, 3], params, outputs=(2,)) == 0
    assert seen == [((3, 1, 3), (2,), [1.5, 2.0, 2.0]), [50.0, 2.0, 2.0]]


def test_a_processor_that_changes_its_argument_does_not_change_the_models_logits():
    def spoil(prompt_ids, output_ids, logits):
        logits[:] = 0
        return logits

    logits = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    sampler = RequestSampler(greedy(logits_processors=(spoil,), logit_bias={1: 9.0}), 0, PROMPT, 3, ())
    assert sampler.sample(logits) == 0
    assert logits.tolist() == [1.0, 2.0, 3.0]


def test_a_bad_word_is_completed_at_no_step_and_its_parts_are_free():
    sampler = RequestSampler(greedy(bad_word_ids=((2, 2, 1),)), 0, PROMPT, 3, ())
    chosen = []
    for logits in ([0, 1, 9], [0, 1, 9], [0, 9, 1], [0, 9, 1]):
        chosen.append(sampler.sample(np.array(logits, dtype=np.float32)))
        sampler.append(chosen[-1])
    assert chosen == [2, 2, 2, 2]  # at the third step and the fourth, 1 would have completed it


def test_masks_hold_whatever_a_processor_does():
    def lift(prompt_ids, output_ids, logits):
        return logits + np.array([0, 0, 99], dtype=np.float32)

    assert sample([1, 2, 3], greedy(logits_processors=(lift,), allowed_token_ids=(0, 1))) == 1


def test_a_request_whose_masks_leave_no_token_fails_with_the_numbers():
    with pytest.raises(SamplingFault, match="no token is possible: all 3 logits are -inf"):
        sample([1, 2, 3], greedy(allowed_token_ids=(1,), bad_word_ids=((1,),)))


DISTRIBUTIONS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 3},
    {"top_p": 0.7},
    {"min_p": 0.2},
    {"top_k": 4, "top_p": 0.8, "min_p": 0.01, "temperature": 1.4},
    {"repetition_penalty": 1.5, "logit_bias": {2: 1.0}, "frequency_penalty": 0.3},
    {"allowed_token_ids": (1, 3, 4, 6), "bad_word_ids": ((4, 6), (3,)), "top_p": 0.9},
]
LOGITS = np.array([0.3, 1.8, -1.0, 0.9, 2.2, -3.0, 1.1], dtype=np.float32)


def exact_probabilities(params: SamplingParams) -> np.ndarray:
    """After outputs (4, 4), in float64, by the definitions."""
    logits = LOGITS.astype(np.float64)
    for token_id, bias in params.logit_bias.items():
        logits[token_id] += bias
    for token_id in (1, 3, 4):
        x = logits[token_id]
        logits[token_id] = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
    logits[4] -= 2 * params.frequency_penalty + params.presence_penalty
    if params.allowed_token_ids is not None:  # with the only masks of DISTRIBUTIONS
        logits[[0, 2, 5, 3, 6]] = -INF
    kept = kept_ids(scale(logits.astype(np.float32), params.temperature), params)
    kept = np.arange(logits.size) if kept is None else kept
    weights = np.zeros(logits.size)
    weights[kept] = np.exp(logits[kept] / params.temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("asked", DISTRIBUTIONS)
def test_tokens_come_as_often_as_their_probabilities_say(asked):
    params = SamplingParams(**asked)
    draws = 4000
    counts = np.zeros(LOGITS.size)
    known = [*PROMPT, 4, 4]
    for seed in range(draws):
        counts[RequestSampler(params, seed, known, 3, ()).sample(LOGITS)] += 1
    expected = draws * exact_probabilities(params)
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    chi_square = float(((counts - expected)[possible] ** 2 / expected[possible]).sum())
    free = max(1, int(possible.sum()) - 1)
    assert chi_square < free + 5 * (2 * free) ** 0.5


@settings(max_examples=200)
@given(
    scaled=st.lists(st.floats(-40, 0, width=32) | st.just(-INF), min_size=1, max_size=300),
    key=st.integers(0, 2**64 - 1),
)
def test_setting_aside_hopeless_tokens_never_changes_the_choice(scaled, key):
    scaled = np.array([*scaled, 0.0], dtype=np.float32)
    ids = np.arange(scaled.size) * 3
    noise = random_numbers.gumbel(random_numbers.uniform(random_numbers.random_bits(key, ids)))
    assert draw(scaled, ids, key) == ids[(scaled + noise).argmax()]


# from one certain token to none likelier than the others, and one against a crowd of unlikely ones
@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0, 4.0, 8.0, "crowd"])
def test_the_choice_among_a_whole_vocabulary_is_the_one_without_short_cuts(spread):
    ids = np.arange(49_152)
    choices = set()
    for seed in range(20):
        logits = np.random.default_rng(seed).standard_normal(ids.size).astype(np.float32)
        logits = np.where(ids == seed, 12.0, logits / 4) if spread == "crowd" else spread * logits
        scaled = scale(logits.astype(np.float32), 1.0)
        noise = random_numbers.gumbel(random_numbers.uniform(random_numbers.random_bits(seed, ids)))
        choices.add(draw(scaled, ids, seed))
        assert draw(scaled, ids, seed) == (scaled + noise).argmax()
    assert len(choices) > 10


def test_a_choice_depends_on_seed_and_position_alone_and_on_both():
    flat = np.zeros(1000)
    choices = {
        (seed, n): sample(flat, SamplingParams(), [7] * n, seed) for seed in range(5) for n in range(5)
    }
    again = {(seed, n): sample(flat, SamplingParams(), range(n), seed) for seed in range(5) for n in range(5)}
    assert choices == again
    assert len(set(choices.values())) > 20


@pytest.mark.parametrize(
    "params", [greedy(), SamplingParams(), SamplingParams(top_k=2), SamplingParams(top_p=0.5)]
)
class TestUnusualLogits:
    def test_nan_is_a_fault(self, params):
        with pytest.raises(SamplingFault, match="1 of 3 are NaN, the first at token id 2"):
            sample([1.0, INF, math.nan], params)

    def test_no_possible_token_is_a_fault(self, params):
        with pytest.raises(SamplingFault, match="no token is possible: all 3 logits are -inf"):
            sample([-INF, -INF, -INF], params)

    def test_an_impossible_token_is_never_chosen(self, params):
        assert {sample([-INF, 1.0, -INF, -60.0], params, seed=seed) for seed in range(50)} == {1}

    def test_a_certain_token_is_always_chosen(self, params):
        assert {sample([90.0, 1.0, INF], params, seed=seed) for seed in range(50)} == {2}

    def test_extreme_logits_do_not_overflow(self, params):
        with np.errstate(all="raise", under="ignore"):
            assert sample([-3e38, 3e38, -3e38], params) == 1


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must return an array of 3 numbers, got NoneType"),
        ("abc", "must return an array of 3 numbers, got str"),
        ([1.0, 2.0], r"must return an array of 3 numbers, got list of shape \(2,\)"),
        ([[1.0, 2.0, 3.0]], r"got list of shape \(1, 3\)"),
        ([[1.0], [2.0, 3.0]], "got list"),
        ({1: 2.0}, "got dict"),
        (5.0, "got float"),
        ([1.0, math.nan, 2.0], "returned logits that are NaN"),
        ([-INF, -INF, -INF], "no token is possible"),
    ],
)
def test_a_processor_that_returns_no_logits_is_a_fault(returned, message):
    def processor(prompt_ids, output_ids, logits):
        return returned

    with pytest.raises(SamplingFault, match=message):
        sample([1, 2, 3], SamplingParams(logits_processors=(processor,)))


def test_a_processor_that_raises_is_a_fault_that_tells_why():
    class Picky:
        def __call__(self, prompt_ids, output_ids, logits):
            raise ValueError("not today")

    with pytest.raises(SamplingFault, match="logits processor Picky raised ValueError: not today"):
        sample([1, 2, 3], SamplingParams(logits_processors=(Picky(),)))
