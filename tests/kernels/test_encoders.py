"""Encoders on every backend: against float64, and to the same bits whatever else is in the batch.

A sequence is always whole in one step, so batches differ in which sequences they hold and in what order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noria.config.model import ModelConfig
from noria.models.build import BuiltModel
from support_backends import BACKENDS, fill_cache
from support_batches import Driver
from support_encoders import reference_hidden, small_encoder
from support_models import load, random_file
from support_quantised import quantised_file

BLOCK_SIZE, NUM_BLOCKS = 16, 120
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.08, "float16": 0.01}
KINDS = [("native", kind) for kind in ("F32", "BF16", "Q8_0", "Q4_1")] + [("torch", "F32")]
KINDS = [pair for pair in KINDS if pair[0] in BACKENDS]


def model_of(backend_name: str, config: ModelConfig, **options: Any) -> BuiltModel:
    return load(random_file(config), BLOCK_SIZE, NUM_BLOCKS, backend_name=backend_name, **options)


def texts_of(lengths: list[int], vocab_size: int = 97) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, vocab_size, length).tolist() for length in lengths]


def whole(model: BuiltModel, texts: list[list[int]], seed: int = 0) -> list[np.ndarray]:
    """Hidden states of each text, all in one step; every other one is a pair of texts."""
    driver = Driver(model, BLOCK_SIZE, NUM_BLOCKS, seed)
    pairs = [(driver.add(text, len(text) // 2 if len(text) % 2 else None), len(text)) for text in texts]
    order = driver.rng.permutation(len(pairs))
    batch = replace(driver.batch([pairs[place] for place in order]), logit_rows=np.zeros(0, np.int32))
    parts = np.split(model.forward(batch).hidden, batch.query_starts[1:-1])
    return [parts[place] for place in np.argsort(order)]


def check(
    backend_name: str, config: ModelConfig, lengths: list[int], dtype: str = "float32", **options: Any
) -> None:
    file = random_file(config)
    model = model_of(backend_name, config, dtype=dtype, num_threads=2, **options)
    texts = texts_of(lengths)
    for text, found in zip(texts, whole(model, texts), strict=True):
        expected = reference_hidden(file, text, len(text) // 2 if len(text) % 2 else None, dtype)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=TOLERANCES[dtype])


@pytest.mark.parametrize("head_dim", [8, 16, 24, 32, 64, 80])
def test_every_token_sees_its_whole_sequence(backend_name: str, head_dim: int) -> None:
    check(backend_name, small_encoder(num_heads=3, head_dim=head_dim, num_layers=1), [1, 2, 23, 24, 25, 90])


def test_sequences_over_several_chunks_of_kv(backend_name: str) -> None:
    check(backend_name, small_encoder(num_heads=2, num_layers=1), [255, 256, 257, 1, 513])


@pytest.mark.parametrize("act", ["gelu", "gelu_pytorch_tanh", "relu", "silu"])
def test_every_activation(backend_name: str, act: str) -> None:
    check(backend_name, small_encoder(hidden_act=act), [40])


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_every_dtype(backend_name: str, dtype: str) -> None:
    check(backend_name, small_encoder(), [60, 3], dtype=dtype, kv_dtype=dtype)


def assert_same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_array_equal(one.view(np.int32), other.view(np.int32))


@pytest.mark.parametrize("kv_dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("backend_name", "kind"), KINDS)
def test_a_sequence_does_not_notice_its_batch_or_the_threads(
    backend_name: str, kind: str, kv_dtype: str
) -> None:
    config = small_encoder(num_heads=8, head_dim=32, intermediate_size=512, num_layers=2)
    file = quantised_file(config, kind)

    def made(num_threads: int) -> BuiltModel:
        options: dict[str, Any] = {
            "backend_name": backend_name,
            "kv_dtype": kv_dtype,
            "num_threads": num_threads,
        }
        model = load(file, BLOCK_SIZE, NUM_BLOCKS, **options)
        fill_cache(model, float("nan"))
        return model

    texts = texts_of([17, 1, 256, 31, 300, 2, 77])
    alone = [whole(made(1), [text])[0] for text in texts]
    for seed, num_threads in ((1, 1), (2, 2), (3, 3)):
        assert_same_bits(whole(made(num_threads), texts, seed), alone)
    assert_same_bits(whole(made(2), texts[:3], 4), alone[:3])
