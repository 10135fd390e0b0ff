"""A token that becomes no number spoils what sees it, and nothing before it: that may be another request's prefix."""

from __future__ import annotations

import numpy as np
import pytest

from noria.models.build import BuiltModel
from support_backends import BACKENDS, fill_cache
from support_batches import Driver
from support_models import load, random_file, small_config

ODD = 96  # the token
BLOCK_SIZE = 16
NUM_BLOCKS = 20
KV_DTYPES = {
    "native": ("float32", "float16", "bfloat16", "int8"),
    "torch": ("float32", "float16", "bfloat16"),
}
CELLS = [(backend, kv) for backend in BACKENDS for kv in KV_DTYPES[backend]]


def model(backend_name: str, kv_dtype: str, windows: tuple[int, ...] = ()) -> BuiltModel:
    """Channel 0 is the odd token's alone, and what its values in layer 0 take of it is beyond float32."""
    file = random_file(small_config(head_dim=8, windows=windows))
    file.arrays["model.embed_tokens.weight"][:, 0] = 0
    file.arrays["model.embed_tokens.weight"][ODD, 0] = 8
    file.arrays["model.layers.0.input_layernorm.weight"][0] = 1
    file.arrays["model.layers.0.self_attn.v_proj.weight"][:, 0] = 3e38
    made = load(file, BLOCK_SIZE, NUM_BLOCKS, backend_name=backend_name, kv_dtype=kv_dtype, num_threads=2)
    fill_cache(made, float("nan"))
    return made


def text_with(place: int, length: int = 300) -> list[int]:
    text = np.random.default_rng(5).integers(0, ODD, length).tolist()
    text[place] = ODD
    return text


def logits(made: BuiltModel, text: list[int], *chunks: int) -> np.ndarray:
    """The text computed in such chunks, and what remains in one."""
    driver = Driver(made, BLOCK_SIZE, NUM_BLOCKS, seed=3)
    sequence = driver.add(text)
    for chunk in chunks:
        driver.step([(sequence, chunk)])
    return driver.run_alone(sequence)


def bits(found: np.ndarray) -> np.ndarray:
    return found.view(np.int32)


@pytest.mark.parametrize("place", [3, 137, 255, 258, 275])
@pytest.mark.parametrize(("backend_name", "kv_dtype"), CELLS)
def test_what_is_before_a_token_that_is_no_number_does_not_notice_it(
    backend_name: str, kv_dtype: str, place: int
) -> None:
    made = model(backend_name, kv_dtype)
    text = text_with(place)
    expected = logits(made, text[:place])
    assert np.isfinite(expected).all()
    # The last chunk is so small that the parts of its context are computed apart.
    for chunks in ((), (262,)):
        found = logits(made, text, *chunks)
        assert np.isnan(found[place:]).all()
        np.testing.assert_array_equal(bits(found[:place]), bits(expected))


@pytest.mark.parametrize(("backend_name", "kv_dtype"), CELLS)
def test_what_looks_back_less_far_than_to_a_token_that_is_no_number_does_not_notice_it(
    backend_name: str, kv_dtype: str
) -> None:
    made, place, window = model(backend_name, kv_dtype, windows=(5, 5)), 137, 5
    text = text_with(place)
    one_by_one = logits(made, text, *[1] * (len(text) - 1))
    spoilt = slice(place, place + 2 * (window - 1) + 1)  # two layers look back, one after the other
    assert np.isnan(one_by_one[spoilt]).all()
    whole, apart = logits(made, text), np.delete(one_by_one, spoilt, axis=0)
    assert np.isnan(whole[spoilt]).all()
    assert np.isfinite(apart).all()
    np.testing.assert_array_equal(bits(np.delete(whole, spoilt, axis=0)), bits(apart))


@pytest.mark.parametrize(("backend_name", "kv_dtype"), CELLS)
def test_a_sequence_does_not_notice_another_that_is_no_numbers(backend_name: str, kv_dtype: str) -> None:
    made = model(backend_name, kv_dtype)
    healthy, odd = text_with(0, 40)[1:], text_with(2, 30)
    expected = logits(made, healthy)
    driver = Driver(made, BLOCK_SIZE, NUM_BLOCKS, seed=3)
    sequence, other = driver.add(healthy), driver.add(odd)
    driver.run_mixed(longest_chunk=7)
    np.testing.assert_array_equal(bits(driver.logits(sequence)), bits(expected))
    assert np.isnan(driver.logits(other)[2:]).all()
