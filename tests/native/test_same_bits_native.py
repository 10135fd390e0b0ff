"""The promise of the native backend: a token's logits are the same bits whatever else is computed.

As for the reference backend: sequences run mixed, their blocks handed out at random from memory full of NaN, and each
alone in one go; chunked, after a prefix hit, and with any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.model import ModelConfig
from noria.models.build import BuiltModel
from support_batches import Driver
from support_models import load, small_config
from support_quantised import QUANTISED_KINDS, quantised_file

KINDS = ("F32", "BF16", *QUANTISED_KINDS)
KV_DTYPES = ("float32", "float16", "bfloat16")


def model_of(config: ModelConfig, kind: str, block_size: int, num_blocks: int, **options: Any) -> BuiltModel:
    model = load(quantised_file(config, kind), block_size, num_blocks, backend_name="native", **options)
    model._backend._cache.fill(float("nan"))
    return model


def texts_of(lengths: list[int], vocab_size: int) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, vocab_size, length).tolist() for length in lengths]


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


# (num_heads, num_kv_heads, head_dim): groups of 1 to 8 and beyond a tile, head sizes with and without whole tiles;
# all heads together are whole blocks of every kind
HEADS = [
    (32, 32, 8),
    (16, 4, 16),
    (12, 4, 64),
    (28, 4, 64),
    (32, 8, 24),
    (16, 2, 80),
    (32, 1, 8),
    (6, 2, 128),
]


@settings(max_examples=15, deadline=None)
@given(
    heads=st.sampled_from(HEADS),
    window=st.sampled_from([0, 1, 5, 300]),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    kv_dtype=st.sampled_from(KV_DTYPES),
    block_size=st.sampled_from([8, 16, 32]),
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    longest_chunk=st.sampled_from([1, 3, 16, 70]),
    num_threads=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 2**16),
)
def test_a_sequence_does_not_notice_its_batch(
    heads: tuple[int, int, int],
    window: int,
    kind: str,
    dtype: str,
    kv_dtype: str,
    block_size: int,
    lengths: list[int],
    longest_chunk: int,
    num_threads: int,
    seed: int,
) -> None:
    config = config_of(heads, (window, 0))
    num_blocks = sum(-(-length // block_size) for length in lengths)
    texts = texts_of(lengths, config.vocab_size)
    driver = Driver(
        model_of(
            config, kind, block_size, num_blocks, dtype=dtype, kv_dtype=kv_dtype, num_threads=num_threads
        ),
        block_size,
        num_blocks,
        seed,
    )
    sequences = [driver.add(text) for text in texts]
    driver.run_mixed(longest_chunk)
    alone = model_of(config, kind, 16, 6, dtype=dtype, kv_dtype=kv_dtype, num_threads=1)
    assert_same_bits([driver.logits(s) for s in sequences], lone_logits(alone, texts, 16, 6))


def config_of(heads: tuple[int, int, int], windows: tuple[int, ...] = ()) -> ModelConfig:
    num_heads, num_kv_heads, head_dim = heads
    return small_config(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        hidden_size=256,
        intermediate_size=256,
        windows=windows,
    )


@pytest.mark.parametrize("window", [0, 100, 256, 300])
@pytest.mark.parametrize(("kind", "kv_dtype"), [("F32", "float32"), ("F32", "float16"), ("Q8_0", "bfloat16")])
def test_contexts_over_several_chunks_of_kv_do_not_notice_their_batch(
    window: int, kind: str, kv_dtype: str
) -> None:
    config = config_of((4, 2, 64), (window, 0))
    texts = texts_of([255, 256, 257, 700, 1, 513, 40], config.vocab_size)
    driver = Driver(model_of(config, kind, 16, 140, kv_dtype=kv_dtype, num_threads=2), 16, 140, seed=3)
    sequences = [driver.add(text) for text in texts]
    driver.run_mixed(longest_chunk=200)
    alone = model_of(config, kind, 32, 70, kv_dtype=kv_dtype)
    assert_same_bits([driver.logits(s) for s in sequences], lone_logits(alone, texts, 32, 70))


@pytest.mark.parametrize("kind", ["F32", "Q4_1"])
def test_a_prefix_computed_by_another_sequence_gives_the_same_bits(kind: str) -> None:
    config = config_of((4, 2, 64))
    prefix, tails = texts_of([64], 97)[0], texts_of([30, 9, 1], 97)
    expected = lone_logits(model_of(config, kind, 16, 10), [prefix + tail for tail in tails], 16, 10)
    driver = Driver(model_of(config, kind, 16, 40), 16, 40)
    first = driver.add(prefix)
    driver.run_alone(first)
    shared = [driver.add_sharing(first, tail) for tail in tails]
    driver.run_mixed(longest_chunk=7)
    assert_same_bits([driver.logits(s) for s in shared], [logits[64:] for logits in expected])


@pytest.mark.parametrize("kind", ["F32", "Q4_1"])
def test_decoding_far_into_a_context_equals_computing_it_in_one_go(kind: str) -> None:
    config = config_of((4, 2, 64))
    (text,) = texts_of([600], config.vocab_size)
    expected = lone_logits(model_of(config, kind, 16, 40), [text], 16, 40)[0]
    driver = Driver(model_of(config, kind, 16, 40, num_threads=2), 16, 40)
    sequence = driver.add(text)
    driver.step([(sequence, 500)])
    while driver.remaining(sequence):
        driver.step([(sequence, 1)])
    assert_same_bits([driver.logits(sequence)], [expected])
