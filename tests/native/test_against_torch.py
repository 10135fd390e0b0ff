"""The native backend gives what the reference backend gives: the same weights, ops and cache, another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noria.config.model import RopeConfig
from support_batches import Driver
from support_models import MemoryFile, load, random_file, small_config
from support_quantised import QUANTISED_KINDS, quantised_file

EVERYTHING = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}
MODELS: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": False, "vocab_size": 1000},
    EVERYTHING,
    {"architecture": "qwen3", "head_dim": 16, "num_kv_heads": 1},
    {"architecture": "mistral", "windows": (5, 0)},
    {"windows": (300, 40)},
    {"num_heads": 7, "num_kv_heads": 1, "head_dim": 24, "hidden_size": 33, "intermediate_size": 35},
    {"num_heads": 5, "num_kv_heads": 1, "head_dim": 128},
    {"num_heads": 3, "num_kv_heads": 3, "head_dim": 80},
    {"hidden_act": "gelu_pytorch_tanh"},
    {"rope": RopeConfig(rotary_dim=4)},
    {"rope": RopeConfig("linear", theta=500.0, factor=4.0)},
]


def logits_of(file: MemoryFile, backend: str, dtype: str = "float32", kv: str | None = None) -> np.ndarray:
    model = load(file, 16, 40, backend_name=backend, dtype=dtype, kv_dtype=kv, num_threads=2)
    driver = Driver(model, 16, 40)
    sequence = driver.add(np.random.default_rng(1).integers(0, file.config.vocab_size, 560).tolist())
    driver.step([(sequence, 300)])
    while driver.remaining(sequence):
        driver.step([(sequence, min(53, driver.remaining(sequence)))])
    return driver.logits(sequence)


@pytest.mark.parametrize("file_format", ["safetensors", "gguf"])
@pytest.mark.parametrize("overrides", MODELS)
def test_float32_logits_are_those_of_the_reference(overrides: dict[str, Any], file_format: str) -> None:
    file = random_file(small_config(**overrides), file_format)
    expected = logits_of(file, "torch")
    np.testing.assert_allclose(logits_of(file, "native"), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("overrides", MODELS[:4])
def test_bfloat16_logits_differ_by_what_rounding_keys_and_values_explains(overrides: dict[str, Any]) -> None:
    file = random_file(small_config(**overrides))
    expected, exact = logits_of(file, "torch", "bfloat16"), logits_of(file, "torch")
    found = logits_of(file, "native", "bfloat16")
    assert np.abs(found - expected).max() < np.abs(expected - exact).max() / 4


@pytest.mark.parametrize("kv", ["float16", "bfloat16"])
@pytest.mark.parametrize("overrides", MODELS[:8])
def test_a_cache_in_16_bits_differs_by_what_rounding_explains(overrides: dict[str, Any], kv: str) -> None:
    file = random_file(small_config(**overrides))
    exact, expected = (logits_of(file, "torch", kv=one) for one in (None, kv))
    found = logits_of(file, "native", kv=kv)
    assert np.abs(found - expected).max() < np.abs(expected - exact).max() / 4


def with_biases(file: MemoryFile, value: float) -> MemoryFile:
    """Keys and values of the first layer are all about this large."""
    biases = {f"model.layers.0.self_attn.{part}_proj.bias": value for part in ("k", "v")}
    arrays = {name: array * 0 + biases.get(name, array) for name, array in file.arrays.items()}
    return MemoryFile(file.format, file.config, arrays)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_keys_and_values_beyond_float16_are_held_as_its_largest_number(backend: str) -> None:
    file = random_file(small_config(**EVERYTHING))
    found, larger = (logits_of(with_biases(file, value), backend, kv="float16") for value in (1e20, 1e30))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, larger)


@pytest.mark.parametrize(
    ("backend", "kv"),
    [
        ("native", "int8"),
        *((one, kv) for one in ("native", "torch") for kv in ("float32", "float16", "bfloat16")),
    ],
)
def test_what_is_not_finite_is_seen_in_the_logits_whatever_the_cache_holds(backend: str, kv: str) -> None:
    file = random_file(small_config(**EVERYTHING))
    for part in ("k_proj", "v_proj"):  # finite numbers, or it would not be loaded; their sums are not
        weight = file.arrays[f"model.layers.0.self_attn.{part}.weight"]
        weight[:] = np.copysign(np.float32(3e38), weight)
    assert np.isnan(logits_of(file, backend, kv=kv)).all()


@pytest.mark.parametrize("file_format", ["safetensors", "gguf"])
@pytest.mark.parametrize("kind", QUANTISED_KINDS)
def test_quantised_models_differ_from_their_numbers_by_rounded_activations_only(
    kind: str, file_format: str
) -> None:
    file = quantised_file(small_config(**EVERYTHING, **QUANTISABLE), kind, file_format)
    expected = logits_of(file, "torch")
    error = logits_of(file, "native") - expected
    assert np.sqrt((error**2).mean()) < 0.03 * expected.std()


QUANTISABLE: dict[str, Any] = {
    "num_heads": 8,
    "num_kv_heads": 2,
    "head_dim": 32,
    "hidden_size": 256,
    "intermediate_size": 512,
}


@pytest.mark.parametrize(
    "kinds",
    [
        {"v_proj": "Q6_K", "down": "Q6_K"},
        {"k_proj": "Q8_0", "v_proj": "Q5_0"},
        {"up_proj": "Q8_0"},
        {"v_proj": "F32", "gate": "F32"},
        {"embed": "F32", "down": "BF16"},
    ],
)
def test_tensors_of_different_kinds_stand_beside_each_other(kinds: dict[str, str]) -> None:
    file = quantised_file(small_config(**EVERYTHING, **QUANTISABLE), "Q4_K", kinds=kinds)
    expected = logits_of(file, "torch")
    error = logits_of(file, "native") - expected
    assert np.sqrt((error**2).mean()) < 0.03 * expected.std()


@pytest.mark.parametrize("kv", ["float32", "float16", "bfloat16", "int8"])
def test_copied_blocks_serve_another_sequence(kv: str) -> None:
    model = load(random_file(small_config()), 8, 8, backend_name="native", kv_dtype=kv)
    driver = Driver(model, 8, 8)
    first = driver.add(list(range(16)))
    driver.run_alone(first)
    batch = driver.batch([(driver.add_sharing(first, [13]), 1)])
    expected = model.forward(batch).logits
    blocks = batch.block_tables[0, :2].tolist()
    free = [block for block in range(8) if block not in batch.block_tables[0]][:2]
    model.copy_blocks(list(zip(blocks, free, strict=True)))
    batch.block_tables[0, :2] = free
    np.testing.assert_array_equal(model.forward(batch).logits, expected)
