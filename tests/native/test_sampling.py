"""The native sampler chooses what the definition in noria.sampling chooses, to the token and to the bit."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noria.kernels.native import _native
from noria.kernels.native.sampling import NativeSampler
from noria.sampling.logprobs import Asked
from noria.sampling.nonfinite import SamplingFault
from noria.sampling.params import SamplingParams
from noria.sampling.sampler import ReferenceSampler
from noria.sampling.token_masks import Allowed, num_words

INF = math.inf
NAN = math.nan
PROMPT = (3, 1, 3, 0)
NATIVE = NativeSampler(_native.Pool(2))

SIZES = st.one_of(st.integers(4, 200), st.sampled_from([63, 64, 65, 512, 1000, 4096, 8200]))
SHAPES = ["flat", "wide", "narrow", "tied", "holes", "huge", "peaked", "certain"]


def logits_of(shape: str, size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(size).astype(np.float32)
    if shape == "flat":
        return np.full(size, rng.standard_normal(), dtype=np.float32)
    if shape == "tied":
        return np.rint(2 * normal) / np.float32(2)
    if shape == "holes":
        return np.where(rng.random(size) < 0.7, np.float32(-INF), 3 * normal)
    if shape == "huge":
        return (normal * np.float32(3e37)).astype(np.float32)
    if shape == "peaked":
        normal[rng.integers(size)] = 30
    if shape == "certain":
        normal[rng.integers(size, size=2)] = INF
    return normal * np.float32({"wide": 8.0, "narrow": 0.01}.get(shape, 1.0))


@st.composite
def rows(draw) -> np.ndarray:
    size, count = draw(SIZES), draw(st.integers(1, 5))
    return np.stack(
        [logits_of(draw(st.sampled_from(SHAPES)), size, draw(st.integers(0, 2**32))) for _ in range(count)]
    )


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.0, 1.3, 5e-324, 1e-30, 0.01, 1e20, 1.7e308]),
    top_k=st.sampled_from([0, 0, -1, 1, 2, 5, 40, 64, 65, 700, 100_000]),
    top_p=st.sampled_from([1.0, 1.0, 5e-324, 0.1, 0.5, 0.9, 0.97, 0.999999, 1 - 2**-53]),
    min_p=st.sampled_from([0.0, 0.0, 5e-324, 1e-8, 0.05, 0.3, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3, 0.5, 1e-300, 1e300]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.1, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.4, -0.7]),
    allowed_token_ids=st.sampled_from([None, None, None, (0, 1, 2, 3), (3, 1)]),
    bad_word_ids=st.sampled_from([(), (), ((1,),), ((1, 0), (2, 1, 3), (0,))]),
    logit_bias=st.dictionaries(st.integers(0, 3), st.sampled_from([-100.0, -1.5, 0.1, 100.0]), max_size=3),
    stop_token_ids=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    min_tokens=st.sampled_from([0, 0, 2]),
    ignore_eos=st.booleans(),
)


def both(params: list[SamplingParams], seed: int, eos: tuple[int, ...] = (2,)):
    """(sampler, its requests) of the definition, then of the native sampler."""
    for sampler in (ReferenceSampler(), NATIVE):
        yield (
            sampler,
            [sampler.admit(one, seed + i, (*PROMPT, 2, 1), len(PROMPT), eos) for i, one in enumerate(params)],
        )


def told(choices: list) -> list:
    return [str(choice) if isinstance(choice, SamplingFault) else choice for choice in choices]


@settings(max_examples=300, deadline=None)
@given(logits=rows(), params=st.lists(PARAMS, min_size=5, max_size=5), seed=st.integers(0, 2**64 - 6))
@example(np.full((1, 64), -INF, np.float32), [SamplingParams()] * 5, 0)
@example(np.array([[1, 2, 2, -0.0, 0.0]], np.float32), [SamplingParams(temperature=1e30, top_k=2)] * 5, 0)
def test_the_choice_is_that_of_the_definition_in_step_after_step(logits, params, seed):
    before = logits.copy()
    (reference, expected), (native, found) = both(params[: len(logits)], seed)
    places = range(len(logits))
    for _ in range(3):
        assert told(native.sample(logits, places, found)) == told(reference.sample(logits, places, expected))
    assert logits.tobytes() == before.tobytes()


@settings(max_examples=300, deadline=None)
@given(
    logits=rows(),
    params=st.lists(PARAMS, min_size=5, max_size=5),
    seed=st.integers(0, 2**64 - 6),
    density=st.sampled_from([0.0, 0.01, 0.3, 0.99, 1.0]),
)
def test_the_choice_among_allowed_tokens_is_that_of_the_definition(logits, params, seed, density):
    count, size = logits.shape
    rng = np.random.default_rng(seed)
    is_allowed = rng.random((3, 32 * num_words(size))) < density
    bits = np.packbits(is_allowed, axis=1, bitorder="little").view(np.uint32)
    allowed = Allowed(bits, rng.integers(-1, 3, size=count).astype(np.int32))
    before = logits.copy()
    (reference, expected), (native, found) = both(params[:count], seed)
    for _ in range(3):
        choices = native.sample(logits, range(count), found, allowed)
        assert told(choices) == told(reference.sample(logits, range(count), expected, allowed))
        for choice, place in zip(choices, allowed.places.tolist(), strict=True):
            assert place < 0 or isinstance(choice, SamplingFault) or is_allowed[place, choice]
    assert logits.tobytes() == before.tobytes()


@pytest.mark.parametrize(
    ("bits", "places"),
    [((1, 1), [0]), ((1, 2), [1]), ((1, 2), [-2]), ((0, 0), [0]), ((1, 2), [0, 0])],
)
def test_bits_that_do_not_fit_the_logits_are_refused(bits, places):
    (_, _), (native, found) = both([SamplingParams()], 0)
    allowed = Allowed(np.zeros(bits, dtype=np.uint32), np.array(places, dtype=np.int32))
    with pytest.raises(ValueError, match=r"bits|places"):
        native.sample(np.zeros((1, 33), np.float32), [0], found, allowed)


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 2.5, 6.0])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 0.6},
        {"top_p": 0.9},
        {"top_k": 40},
        {"top_k": 5000, "top_p": 0.95},
        {"min_p": 0.02},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "top_p": 0.99},
    ],
)
def test_a_whole_vocabulary_gives_the_choices_of_the_definition(spread, asked):
    rng = np.random.default_rng(5)
    logits = (spread * rng.standard_normal((12, 49_155))).astype(np.float32)
    (reference, expected), (native, found) = both([SamplingParams(**asked)] * 12, seed=9)
    for _ in range(2):
        assert native.sample(logits, range(12), found) == reference.sample(logits, range(12), expected)


@settings(max_examples=300, deadline=None)
@given(logits=rows(), seed=st.integers(0, 2**32), num_top=st.integers(0, 80))
def test_logprobs_are_those_of_the_definition_to_the_bit(logits, seed, num_top):
    rng = np.random.default_rng(seed)
    size = logits.shape[1]
    asked = [
        Asked(int(row), int(token), min(num_top, size))
        for row, token in zip(rng.integers(len(logits), size=6), rng.integers(size, size=6), strict=True)
    ]
    assert told(NATIVE.logprobs(logits, asked)) == told(ReferenceSampler().logprobs(logits, asked))


def test_all_of_a_vocabulary_can_be_told_of():
    logits = logits_of("tied", 3000, 1)[None]
    asked = [Asked(0, 7, 3000)]
    assert NATIVE.logprobs(logits, asked) == ReferenceSampler().logprobs(logits, asked)


ODD_ROWS = [
    [1.0, NAN, 2.0, NAN, 3.0],
    [-INF, -INF, -INF, -INF, -INF],
    [INF, NAN, 0.0, 0.0, 0.0],
    [5.0, 5.0, 5.0, 5.0, 5.0],
    [INF, 1.0, INF, -INF, 0.0],
]


@pytest.mark.parametrize("width", [5, 64, 71])
@pytest.mark.parametrize("asked", [{"temperature": 0.0}, {}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5}])
def test_a_row_that_says_nothing_is_a_fault_of_its_own_request_alone(asked, width):
    logits = np.full((5, width), -INF, dtype=np.float32)
    logits[:, width - 5 :] = ODD_ROWS
    (reference, expected), (native, found) = both([SamplingParams(**asked)] * 5, seed=1)
    choices = told(native.sample(logits, range(5), found))
    assert choices == told(reference.sample(logits, range(5), expected))
    assert (
        choices[0] == f"the logits are not numbers: 2 of {width} are NaN, the first at token id {width - 4}"
    )
    assert choices[1] == f"no token is possible: all {width} logits are -inf"
    assert all(isinstance(choice, int) for choice in choices[3:])
    wanted = [Asked(row, 0, 2) for row in range(5)]
    assert told(native.logprobs(logits, wanted)) == told(reference.logprobs(logits, wanted))


def _lift(prompt_ids, output_ids, logits):
    logits[(len(prompt_ids) + len(output_ids)) % len(logits)] += 400
    return logits


def _raise(prompt_ids, output_ids, logits):
    raise KeyError("not today")


def test_processors_run_for_their_own_requests_between_penalties_and_min_tokens():
    logits = logits_of("wide", 10, 3)[None].repeat(5, 0)
    params = [
        SamplingParams(temperature=0.0),
        SamplingParams(logits_processors=(_lift,), temperature=0.0, presence_penalty=1.0),
        SamplingParams(logits_processors=(_raise,)),
        SamplingParams(logits_processors=(_lift, _lift), min_tokens=6, stop_token_ids=(6, 7)),
        SamplingParams(top_k=3),
    ]
    (reference, expected), (native, found) = both(params, seed=4)
    for step in range(4):
        choices = told(native.sample(logits, range(5), found))
        assert choices == told(reference.sample(logits, range(5), expected))
        assert choices[1] == (6 + step) % 10
        assert choices[2] == "logits processor _raise raised KeyError: 'not today'"


def test_a_choice_is_the_same_alone_in_a_crowd_and_on_any_number_of_threads():
    logits = np.stack([logits_of("wide", 1000, seed) for seed in range(32)])
    params = [SamplingParams(top_p=0.9, temperature=0.5 + seed / 10) for seed in range(32)]

    def choices(sampler: NativeSampler, groups: list[range]) -> list:
        requests = [sampler.admit(one, i, PROMPT, 4, ()) for i, one in enumerate(params)]
        return [
            choice
            for group in groups
            for choice in sampler.sample(logits, group, [requests[i] for i in group])
        ]

    alone = choices(NATIVE, [range(i, i + 1) for i in range(32)])
    for num_threads in (1, 2, 5):
        sampler = NativeSampler(_native.Pool(num_threads))
        assert choices(sampler, [range(32)]) == alone
        assert choices(sampler, [range(3), range(3, 32)]) == alone


@pytest.mark.parametrize("row_order", [[0, 0], [1, 0], [0, 2], [-1, 0]])
def test_rows_that_are_not_there_or_not_in_order_are_refused_with_the_numbers(row_order):
    requests = [NATIVE.admit(SamplingParams(), 0, PROMPT, 4, ()) for _ in range(2)]
    with pytest.raises(ValueError, match=r"row -?\d+ after row -?\d+ of 2"):
        NATIVE.sample(np.zeros((2, 8), np.float32), row_order, requests)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logit_bias={9: 1.0}),
        SamplingParams(stop_token_ids=(9,)),
        SamplingParams(repetition_penalty=2.0),
    ],
)
def test_token_ids_beyond_the_row_are_refused_with_the_numbers(params):
    request = NATIVE.admit(params, 0, (9, 1), 2, ())
    with pytest.raises(ValueError, match="the token id 9; a row has 8 logits"):
        NATIVE.sample(np.zeros((1, 8), np.float32), [0], [request])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"temperature": NAN}, "a sampling parameter is nan"),
        ({"temperature": -1.0}, r"temperature -1\.0"),
        ({"top_p": 0.0}, r"top_p 0\.0"),
        ({"top_p": NAN}, "top_p nan"),
        ({"min_p": 1.5}, r"min_p 1\.5"),
        ({"repetition_penalty": INF}, "a sampling parameter is inf"),
        ({"logit_bias": {-1: 1.0}}, "the token id -1 is out of range"),
        ({"logit_bias": {1: INF}}, "a logit's bias is inf"),
        ({"logit_bias": {1: NAN}}, "a logit's bias is nan"),
        ({"logit_bias": {1: -1e300}}, "a logit's bias is -1"),
    ],
)
def test_parameters_that_nobody_checked_are_refused_with_the_numbers(changed, message):
    plain = SamplingParams()
    params = SimpleNamespace(**{name: getattr(plain, name) for name in plain.__dataclass_fields__} | changed)
    with pytest.raises(ValueError, match=message):
        _native.SampledRequest(params, 0, np.zeros(1, np.int32), 1, [])


def test_a_request_that_is_none_is_refused():
    with pytest.raises((ValueError, TypeError)):
        _native.Sampler(_native.Pool(1)).sample(
            np.zeros((1, 8), np.float32), np.zeros(1, np.int32), [None], np.zeros((1, 3), np.int32)
        )


def test_a_row_without_logits_is_a_fault():
    (choice,) = NATIVE.sample(
        np.zeros((1, 0), np.float32), [0], [NATIVE.admit(SamplingParams(), 0, PROMPT, 4, ())]
    )
    assert str(choice) == "no token is possible: all 0 logits are -inf"
