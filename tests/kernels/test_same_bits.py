"""The promise of the reference backend: a token's logits are the same bits whatever else is computed.

Sequences run mixed (random subsets, random chunks, random order, blocks handed out at random, stale memory full of
NaN) and each alone in one go, and all logits must be equal; so must runs with other numbers of threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.model import ModelConfig
from noria.kernels.batch import Batch
from noria.models.build import BuiltModel
from support_batches import Driver
from support_models import random_model, small_config

BLOCK_SIZES = (1, 7, 16, 32)


def model_of(config: ModelConfig, block_size: int, num_blocks: int, **options: Any) -> BuiltModel:
    """Its cache memory is full of what earlier owners may have left."""
    model = random_model(config, block_size, num_blocks, **options)
    cache = model._backend._cache
    cache._kv[:, :, :, : cache.zero_slot] = float("nan")
    return model


def texts_of(lengths: list[int], vocab_size: int) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, vocab_size, length).tolist() for length in lengths]


def mixed_logits(
    model: BuiltModel, texts: list[list[int]], block_size: int, num_blocks: int, seed: int, longest_chunk: int
) -> list[np.ndarray]:
    driver = Driver(model, block_size, num_blocks, seed)
    for text in texts:
        driver.add(text)
    driver.run_mixed(longest_chunk)
    return [driver.logits(sequence) for sequence in range(len(texts))]


def lone_logits(
    model: BuiltModel, texts: list[list[int]], block_size: int, num_blocks: int
) -> list[np.ndarray]:
    found = []
    for text in texts:
        driver = Driver(model, block_size, num_blocks, seed=9)
        found.append(driver.run_alone(driver.add(text)))
    return found


def assert_same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for sequence, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert np.isfinite(b).all()
        different = np.nonzero((a.view(np.int32) != b.view(np.int32)).any(1))[0]
        assert not len(different), f"sequence {sequence}: positions {different.tolist()} differ"


# (num_heads, num_kv_heads, head_dim, hidden, intermediate): groups 1 to 8, odd sizes, sizes of real models
SHAPES = [
    (2, 2, 8, 16, 36),
    (6, 2, 8, 48, 80),
    (9, 3, 64, 192, 516),
    (4, 1, 10, 33, 35),
    (7, 1, 16, 56, 100),
    (8, 1, 80, 64, 129),
]


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    window=st.sampled_from([0, 1, 5, 300]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    block_size=st.sampled_from(BLOCK_SIZES),
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=5),
    longest_chunk=st.sampled_from([2, 5, 16, 50]),
    num_threads=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 2**16),
)
def test_a_sequence_does_not_notice_its_batch(
    shape: tuple[int, ...],
    window: int,
    dtype: str,
    block_size: int,
    lengths: list[int],
    longest_chunk: int,
    num_threads: int,
    seed: int,
) -> None:
    config = config_of(shape, window)
    num_blocks = sum(-(-length // block_size) for length in lengths)
    texts = texts_of(lengths, config.vocab_size)
    model = model_of(config, block_size, num_blocks, dtype=dtype, num_threads=num_threads)
    found = mixed_logits(model, texts, block_size, num_blocks, seed, longest_chunk)
    alone = model_of(config, block_size, num_blocks, dtype=dtype, num_threads=1)
    assert_same_bits(found, lone_logits(alone, texts, block_size, num_blocks))


def config_of(shape: tuple[int, ...], window: int) -> ModelConfig:
    num_heads, num_kv_heads, head_dim, hidden_size, intermediate_size = shape
    return small_config(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        windows=(window, 0),
    )


@pytest.mark.parametrize("window", [0, 100, 256, 300])
def test_contexts_over_several_chunks_of_kv_do_not_notice_their_batch(window: int) -> None:
    config = small_config(windows=(window, 0), max_position=1024)
    lengths = [255, 256, 257, 700, 1, 513, 40]
    texts = texts_of(lengths, config.vocab_size)
    model = model_of(config, 16, 140, num_threads=2)
    found = mixed_logits(model, texts, 16, 140, seed=3, longest_chunk=200)
    assert_same_bits(found, lone_logits(model_of(config, 32, 70), texts, 32, 70))


def test_a_prefix_computed_by_another_sequence_gives_the_same_bits() -> None:
    config = small_config()
    prefix, tails = texts_of([64], 97)[0], texts_of([30, 9, 1], 97)
    expected = lone_logits(model_of(config, 16, 10), [prefix + tail for tail in tails], 16, 10)
    model = model_of(config, 16, 40)
    driver = Driver(model, 16, 40)
    first = driver.add(prefix)
    driver.run_alone(first)
    shared = [driver.add_sharing(first, tail) for tail in tails]
    driver.run_mixed(longest_chunk=7)
    assert_same_bits([driver.logits(s) for s in shared], [logits[64:] for logits in expected])


def test_decoding_far_into_a_context_equals_computing_it_in_one_go() -> None:
    config = small_config(max_position=600)
    (text,) = texts_of([520], config.vocab_size)
    expected = lone_logits(model_of(config, 16, 33), [text], 16, 33)[0]
    driver = Driver(model_of(config, 16, 33, num_threads=2), 16, 33)
    sequence = driver.add(text)
    for start in (250, 240):
        driver.step([(sequence, start)])
        for _ in range(15):
            driver.step([(sequence, 1)])
    assert_same_bits([driver.logits(sequence)], [expected])


def test_asking_for_fewer_logits_changes_none() -> None:
    config = small_config(tie_word_embeddings=False, vocab_size=2100)
    texts = texts_of([30, 1, 12], config.vocab_size)
    model = model_of(config, 16, 10)
    expected = lone_logits(model, texts, 16, 10)
    driver = Driver(model, 16, 10)
    batch = driver.batch([(driver.add(text), len(text)) for text in texts])
    rows = np.concatenate(expected)
    for wanted in ([], [0], [29, 30, 42], list(range(0, 43, 2))):
        logits = model.forward(replace_rows(batch, wanted))
        assert logits.shape == (len(wanted), 2100)
        assert_same_bits([logits], [rows[wanted]])


def replace_rows(batch: Batch, rows: list[int]) -> Batch:
    return replace(batch, logit_rows=np.array(rows, dtype=np.int32))


@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt"])
def test_a_function_gives_a_number_the_same_bits_at_every_place(name: str) -> None:
    function = getattr(torch, name)
    x = (torch.rand(5000, generator=torch.Generator().manual_seed(1)) + 0.001) * 20
    one_by_one = torch.cat([function(number) for number in x.split(1)])
    before = torch.get_num_threads()
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            for start in range(0, 40, 3):
                for length in (1, 2, 7, 8, 9, 31, 33, 1000, 4900):
                    piece = slice(start, start + length)
                    assert torch.equal(function(x[piece]), one_by_one[piece])
    finally:
        torch.set_num_threads(before)
