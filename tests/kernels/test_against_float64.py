"""Every backend against a decoder in float64, over shapes, dtypes and contexts."""

from __future__ import annotations

import numpy as np
import pytest

from noria.config.model import ModelConfig, RopeConfig
from support_batches import Driver
from support_models import load, random_file, small_config
from support_reference import reference_hidden, reference_logits

# Sums and products are float32 in every dtype, so what is left is a KV element here and there that rounds the
# other way: one unit in the last place of 8 or 11 bits.
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}
SMALLEST_HEAD = {"native": 8, "torch": 6}


def check(backend_name: str, config: ModelConfig, length: int, dtype: str = "float32") -> None:
    file = random_file(config)
    model = load(file, block_size=16, num_blocks=64, dtype=dtype, num_threads=2, backend_name=backend_name)
    token_ids = np.random.default_rng(2).integers(0, config.vocab_size, length).tolist()
    driver = Driver(model, 16, 64)
    sequence = driver.add(token_ids)
    driver.run_mixed(longest_chunk=50)
    expected = reference_logits(file, token_ids, dtype)
    found = driver.logits(sequence)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=TOLERANCES[dtype] * max(1.0, expected.std()))


@pytest.mark.parametrize("head_dim", ["smallest", 64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 4, 7, 8])
def test_any_group_and_head_size(backend_name: str, group: int, head_dim: int | str) -> None:
    size = SMALLEST_HEAD[backend_name] if isinstance(head_dim, str) else head_dim
    check(backend_name, small_config(num_heads=2 * group, head_dim=size, num_layers=1), length=20)


@pytest.mark.parametrize("window", [0, 1, 9, 255, 256, 300])
def test_contexts_and_windows_across_chunks_of_kv(backend_name: str, window: int) -> None:
    check(backend_name, small_config(windows=(window,), num_layers=1), length=530)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_every_dtype(backend_name: str, dtype: str) -> None:
    check(backend_name, small_config(), length=60, dtype=dtype)


@pytest.mark.parametrize("rotary_dim", [2, 4, 8])
def test_a_head_that_turns_in_part(backend_name: str, rotary_dim: int) -> None:
    check(backend_name, small_config(rope=RopeConfig(rotary_dim=rotary_dim)), length=30)


@pytest.mark.parametrize("bias", ["qkv_bias", "output_bias", "mlp_bias"])
def test_each_bias_by_itself(backend_name: str, bias: str) -> None:
    check(backend_name, small_config(**{bias: True}), length=20)


def test_norms_over_heads(backend_name: str) -> None:
    check(backend_name, small_config(architecture="qwen3", head_dim=16), length=30)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_hidden_states_are_given_after_the_last_norm(backend_name: str, dtype: str) -> None:
    file = random_file(small_config())
    model = load(file, block_size=16, num_blocks=8, dtype=dtype, backend_name=backend_name)
    driver = Driver(model, 16, 8)
    sequence = driver.add(list(range(60)))
    driver.run_mixed(longest_chunk=25)
    expected = reference_hidden(file, list(range(60)), dtype)
    np.testing.assert_allclose(driver.hidden(sequence), expected, atol=TOLERANCES[dtype])


def test_a_vocabulary_wider_than_one_panel(backend_name: str) -> None:
    check(backend_name, small_config(vocab_size=4500, tie_word_embeddings=False), length=10)
