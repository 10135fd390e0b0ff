"""The counter-based random numbers: their recipe to the bit, and that they look random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.sampling.random_numbers import bits_bound, gumbel, position_key, random_bits, uniform

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
U64 = st.integers(0, WORD)


def mix(z: int) -> int:
    z &= WORD
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & WORD
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def numbers(seed: int, position: int, num_ids: int) -> np.ndarray:
    return uniform(random_bits(position_key(seed, position), np.arange(num_ids)))


@given(seed=U64, position=st.integers(0, 2**31), token_id=st.integers(0, 2**31))
def test_the_bits_follow_the_documented_recipe(seed, position, token_id):
    expected = mix(mix(mix(seed + GOLDEN) + (position + 1) * GOLDEN) + (token_id + 1) * GOLDEN)
    assert int(random_bits(position_key(seed, position), np.array([token_id]))[0]) == expected


@pytest.mark.parametrize(
    ("seed", "position", "token_id", "bits"),
    [
        (0, 0, 0, 0x238275BC38FCBE91),
        (42, 7, 49151, 0x37E68B963A2CE9B2),
        (2**64 - 1, 131071, 151935, 0x6467542D1552E233),
    ],
)
def test_the_documented_test_vectors_hold(seed, position, token_id, bits):
    assert int(random_bits(position_key(seed, position), np.array([token_id]))[0]) == bits


def test_a_position_is_the_published_splitmix64_sequence_from_its_key():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]  # of state 1234567
    assert random_bits(1234567, np.arange(3)).tolist() == published


def test_a_negative_seed_is_the_seed_modulo_2_to_the_64():
    assert position_key(-1, 3) == position_key(2**64 - 1, 3)


@pytest.mark.parametrize(
    ("bits", "expected"), [(0, 2.0**-53), (WORD, 1 - 2.0**-53), (1 << 63, 0.5 + 2.0**-53), (4095, 2.0**-53)]
)
def test_uniform_is_exact_and_never_reaches_0_or_1(bits, expected):
    assert uniform(np.array([bits], dtype=np.uint64))[0] == expected


@given(key=U64, ids=st.lists(st.integers(0, 2**31), min_size=1, max_size=50))
def test_a_tokens_number_does_not_depend_on_which_others_are_asked_for(key, ids):
    together = random_bits(key, np.array(ids, dtype=np.int64))
    alone = [int(random_bits(key, np.array([i]))[0]) for i in ids]
    assert together.tolist() == alone


def test_the_token_ids_given_are_left_as_they_are():
    ids = np.arange(10, dtype=np.uint64)
    random_bits(1, ids)
    assert ids.tolist() == list(range(10))


def _chi_square(counts: np.ndarray) -> float:
    """Chi-square of counts against equal frequencies, in standard deviations from its mean."""
    expected = counts.sum() / counts.size
    free = counts.size - 1
    return (float(((counts - expected) ** 2 / expected).sum()) - free) / (2 * free) ** 0.5


def _varied(what: str) -> np.ndarray:
    """30,000 numbers in which only one of the three keys varies, as it does in use."""
    if what == "token id":
        return numbers(1, 2, 30_000)
    if what == "position":
        return np.array([numbers(1, p, 1)[0] for p in range(30_000)])
    return np.array([numbers(s, 2, 1)[0] for s in range(30_000)])


@pytest.mark.parametrize("what", ["token id", "position", "seed"])
def test_numbers_are_uniform_and_successive_ones_independent(what):
    drawn = _varied(what)
    cells = (drawn * 256).astype(int)
    assert abs(_chi_square(np.bincount(cells, minlength=256))) < 5
    low_bits = (drawn * 2**52).astype(np.uint64) & np.uint64(255)
    assert abs(_chi_square(np.bincount(low_bits.astype(int), minlength=256))) < 5
    for lag in (1, 2, 7):
        pairs = (drawn[:-lag] * 32).astype(int) * 32 + (drawn[lag:] * 32).astype(int)
        assert abs(_chi_square(np.bincount(pairs, minlength=1024))) < 5


def test_neighbouring_positions_and_seeds_share_no_number():
    ids = np.arange(20_000)
    keys = [position_key(seed, position) for seed in (0, 1, 2) for position in (0, 1, 2)]
    drawn = np.concatenate([random_bits(key, ids) for key in keys])
    assert np.unique(drawn).size == drawn.size


def test_one_changed_bit_of_any_input_changes_half_the_bits():
    flips = []
    for bit in range(16):
        base = int(random_bits(position_key(77, 5), np.array([1000]))[0])
        for seed, position, token_id in (
            (77 ^ 1 << bit, 5, 1000),
            (77, 5 ^ 1 << bit, 1000),
            (77, 5, 1000 ^ 1 << bit),
        ):
            other = int(random_bits(position_key(seed, position), np.array([token_id]))[0])
            flips.append((base ^ other).bit_count())
    assert min(flips) > 14
    assert 30 < sum(flips) / len(flips) < 34


def test_gumbel_noise_has_the_gumbel_distribution():
    noise = gumbel(numbers(3, 4, 200_000))
    for value in (-1.0, 0.0, 1.0, 3.0):
        share = np.exp(-np.exp(-value))
        assert abs((noise <= value).mean() - share) < 5 * (share * (1 - share) / noise.size) ** 0.5
    assert gumbel(np.array([2.0**-53, 1 - 2.0**-53])) == pytest.approx([-3.6038, 36.7368], abs=1e-4)


@given(below_top=st.one_of(st.integers(0, 20_000), U64), slack=st.sampled_from([1.0, 1.001, 3.0]))
def test_the_bound_on_bits_lets_every_number_within_reach_pass(below_top, slack):
    bits = np.array([WORD - below_top], dtype=np.uint64)
    reach = float(1.0 - uniform(bits)[0]) * slack
    assert bits[0] >= bits_bound(reach)


@given(reach=st.floats(1e-12, 0.999))
def test_the_bound_on_bits_lets_hardly_any_other_pass(reach):
    assert 1.0 - float(uniform(np.array([bits_bound(reach)]))[0]) == pytest.approx(reach, rel=1e-3)
