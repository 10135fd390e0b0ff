"""The promise of every backend: a token's logits are the same bits whatever else is computed.

Sequences run mixed (random subsets, random chunks, random order, blocks handed out at random, stale memory full of
NaN), after a prefix hit, after having been preempted, with other numbers of threads, and each alone in one go by one
thread; all logits must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.model import ModelConfig
from noria.kernels.batch import Batch
from noria.models.build import BuiltModel
from support_backends import BACKENDS, fill_cache
from support_batches import Driver
from support_models import load, small_config
from support_quantised import QUANTISED_KINDS, quantised_file

# (num_heads, num_kv_heads, head_dim, hidden, intermediate): groups of 1 to 8 and beyond a tile, head sizes with and
# without whole tiles. Native ones are whole blocks of every kind; the others have odd sizes among them.
SHAPES = {
    "native": [
        (32, 32, 8, 256, 256),
        (16, 4, 16, 256, 256),
        (12, 4, 64, 256, 256),
        (28, 4, 64, 256, 256),
        (32, 8, 24, 256, 256),
        (16, 2, 80, 256, 256),
        (32, 1, 8, 256, 256),
        (6, 2, 128, 256, 256),
    ],
    "torch": [
        (2, 2, 8, 16, 36),
        (6, 2, 8, 48, 80),
        (9, 3, 64, 192, 516),
        (4, 1, 10, 33, 35),
        (7, 1, 16, 56, 100),
        (8, 1, 80, 64, 129),
    ],
}
KINDS = {"native": ("F32", "BF16", *QUANTISED_KINDS), "torch": ("F32",)}
DTYPES = {"native": ["float32", "bfloat16"], "torch": ["float32", "bfloat16", "float16"]}
KV_DTYPES = {
    "native": ["float32", "float16", "bfloat16", "int8"],
    "torch": ["float32", "float16", "bfloat16"],
}
BLOCK_SIZES = {"native": [8, 16, 32], "torch": [1, 7, 16, 32]}
NUM_EXAMPLES = {"native": 20, "torch": 20}

GROUPS = [1, 3, 4, 7, 8]
HEAD_DIMS = [64, 80, 96, 128, 256]
# Every pair where that is quick; elsewhere each number once.
CELLS = [("native", group, dim) for group in GROUPS for dim in HEAD_DIMS]
CELLS += [("torch", group, dim) for group, dim in zip(GROUPS, HEAD_DIMS, strict=True)]
CELLS = [cell for cell in CELLS if cell[0] in BACKENDS]
QUANTISED = {"native": "Q4_1", "torch": "F32"}


@dataclass(frozen=True)
class Maker:
    """Makes the same model again and again, its cache full of what earlier owners may have left."""

    backend_name: str
    config: ModelConfig
    kind: str = "F32"
    dtype: str = "float32"
    kv_dtype: str = "float32"

    def model(self, block_size: int, num_blocks: int, num_threads: int) -> BuiltModel:
        file = quantised_file(self.config, self.kind)
        made = load(
            file,
            block_size,
            num_blocks,
            backend_name=self.backend_name,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            num_threads=num_threads,
        )
        fill_cache(made, float("nan"))
        return made

    def driver(self, num_blocks: int, *, block_size: int = 16, num_threads: int = 2, seed: int = 3) -> Driver:
        return Driver(self.model(block_size, num_blocks, num_threads), block_size, num_blocks, seed)

    def lone_logits(self, texts: list[list[int]], block_size: int = 32) -> list[np.ndarray]:
        """Each text by itself, in one go, by one thread."""
        num_blocks = -(-max(map(len, texts)) // block_size)
        model = self.model(block_size, num_blocks, num_threads=1)
        drivers = [Driver(model, block_size, num_blocks, seed=9) for _ in texts]
        return [driver.run_alone(driver.add(text)) for driver, text in zip(drivers, texts, strict=True)]


def texts_of(lengths: list[int], vocab_size: int = 97) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, vocab_size, length).tolist() for length in lengths]


def assert_same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for sequence, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert np.isfinite(b).all()
        different = np.nonzero((a.view(np.int32) != b.view(np.int32)).any(1))[0]
        assert not len(different), f"sequence {sequence}: positions {different.tolist()} differ"


def config_of(shape: tuple[int, ...], windows: tuple[int, ...] = (), **overrides: Any) -> ModelConfig:
    num_heads, num_kv_heads, head_dim, hidden_size, intermediate_size = shape
    return small_config(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        windows=windows,
        **overrides,
    )


@dataclass(frozen=True)
class Mix:
    maker: Maker
    block_size: int
    lengths: list[int]
    longest_chunk: int
    num_threads: int
    seed: int


def mixes(backend_name: str) -> st.SearchStrategy[Mix]:
    configs = st.builds(
        lambda shape, window: config_of(shape, (window, 0)),
        st.sampled_from(SHAPES[backend_name]),
        st.sampled_from([0, 1, 5, 300]),
    )
    return st.builds(
        Mix,
        maker=st.builds(
            Maker,
            st.just(backend_name),
            configs,
            st.sampled_from(KINDS[backend_name]),
            st.sampled_from(DTYPES[backend_name]),
            st.sampled_from(KV_DTYPES[backend_name]),
        ),
        block_size=st.sampled_from(BLOCK_SIZES[backend_name]),
        lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6),
        longest_chunk=st.sampled_from([1, 3, 16, 70]),
        num_threads=st.sampled_from([1, 2, 3]),
        seed=st.integers(0, 2**16),
    )


def test_a_sequence_does_not_notice_its_batch(backend_name: str) -> None:
    @settings(max_examples=NUM_EXAMPLES[backend_name], deadline=None)
    @given(mix=mixes(backend_name))
    def holds(mix: Mix) -> None:
        texts = texts_of(mix.lengths)
        driver = mix.maker.driver(
            sum(-(-length // mix.block_size) for length in mix.lengths),
            block_size=mix.block_size,
            num_threads=mix.num_threads,
            seed=mix.seed,
        )
        sequences = [driver.add(text) for text in texts]
        driver.run_mixed(mix.longest_chunk)
        assert_same_bits([driver.logits(s) for s in sequences], mix.maker.lone_logits(texts))

    holds()


@pytest.mark.parametrize(("backend_name", "group", "head_dim"), CELLS)
def test_no_group_or_head_size_lets_a_sequence_notice_its_batch(
    backend_name: str, group: int, head_dim: int
) -> None:
    config = config_of((2 * group, 2, head_dim, 64, 64), (9, 0))
    kv_dtypes = KV_DTYPES[backend_name]
    kv_dtype = kv_dtypes[(group + head_dim // 16) % len(kv_dtypes)]
    maker = Maker(backend_name, config, QUANTISED[backend_name], kv_dtype=kv_dtype)
    prefix, tail, *others = texts_of([32, 5, 41, 1])
    driver = maker.driver(num_blocks=12)
    first = driver.add(prefix)
    driver.run_alone(first)
    sharing = driver.add_sharing(first, tail)
    sequences = [driver.add(text) for text in others]
    driver.run_mixed(longest_chunk=20)
    driver.preempt(sequences[0])
    driver.run_mixed(longest_chunk=9)
    expected = maker.lone_logits([prefix + tail, *others])
    expected[0] = expected[0][len(prefix) :]
    assert_same_bits([driver.logits(s) for s in (sharing, *sequences)], expected)


@pytest.mark.parametrize(("place", "window"), [(0, 0), (1, 100), (2, 256), (3, 300)])
def test_contexts_over_several_chunks_of_kv_do_not_notice_their_batch(
    backend_name: str, place: int, window: int
) -> None:
    config, kv_dtypes = config_of((4, 2, 64, 64, 64), (window, 0)), KV_DTYPES[backend_name]
    maker = Maker(backend_name, config, QUANTISED[backend_name], kv_dtype=kv_dtypes[place % len(kv_dtypes)])
    texts = texts_of([255, 256, 257, 1, 513, 40])
    driver = maker.driver(num_blocks=100)
    sequences = [driver.add(text) for text in texts]
    driver.run_mixed(longest_chunk=200)
    assert_same_bits([driver.logits(s) for s in sequences], maker.lone_logits(texts))


def test_a_prefix_computed_by_another_sequence_gives_the_same_bits(backend_name: str) -> None:
    maker = Maker(backend_name, config_of((4, 2, 64, 64, 64)), QUANTISED[backend_name])
    prefix, tails = texts_of([64])[0], texts_of([30, 9, 1])
    driver = maker.driver(num_blocks=40)
    first = driver.add(prefix)
    driver.run_alone(first)
    shared = [driver.add_sharing(first, tail) for tail in tails]
    driver.run_mixed(longest_chunk=7)
    expected = maker.lone_logits([prefix + tail for tail in tails])
    assert_same_bits([driver.logits(s) for s in shared], [logits[64:] for logits in expected])


def test_decoding_far_into_a_context_equals_computing_it_in_one_go(backend_name: str) -> None:
    maker = Maker(backend_name, config_of((4, 2, 64, 64, 64)), QUANTISED[backend_name])
    (text,) = texts_of([530])
    driver = maker.driver(num_blocks=34)
    sequence = driver.add(text)
    for num_together in (250, 240):
        driver.step([(sequence, num_together)])
        for _ in range(20):
            driver.step([(sequence, 1)])
    assert_same_bits([driver.logits(sequence)], maker.lone_logits([text]))


def test_what_is_preempted_and_computed_again_gets_the_same_bits(backend_name: str) -> None:
    maker = Maker(backend_name, config_of((4, 2, 64, 64, 64)), QUANTISED[backend_name])
    texts = texts_of([70, 300, 12])
    driver = maker.driver(num_blocks=26)
    sequences = [driver.add(text) for text in texts]
    before = []
    for num_done in (40, 1, 100):
        driver.step([(sequence, min(num_done, driver.remaining(sequence))) for sequence in sequences[:2]])
        before.append(driver.logits(sequences[1]))
        driver.preempt(sequences[1])
        driver.step([(sequences[2], 3)])
    driver.run_mixed(longest_chunk=64)
    expected = maker.lone_logits(texts)
    assert_same_bits([driver.logits(s) for s in sequences], expected)
    assert_same_bits(before, [expected[1][: len(logits)] for logits in before])


def test_a_hidden_state_does_not_notice_its_batch(backend_name: str) -> None:
    maker = Maker(backend_name, config_of((4, 2, 64, 64, 64)), QUANTISED[backend_name])
    texts = texts_of([70, 1, 33, 18])
    alone = []
    for text in texts:
        driver = maker.driver(5, num_threads=1)
        sequence = driver.add(text)
        driver.run_alone(sequence)
        alone.append(driver.hidden(sequence))
    driver = maker.driver(11, num_threads=2)
    sequences = [driver.add(text) for text in texts]
    driver.run_mixed(longest_chunk=16)
    assert_same_bits([driver.hidden(s) for s in sequences], alone)


def test_asking_for_fewer_hidden_states_changes_none(backend_name: str) -> None:
    maker = Maker(backend_name, config_of((4, 2, 64, 64, 64)), QUANTISED[backend_name])
    model = maker.model(16, 4, num_threads=2)
    driver = Driver(model, 16, 4)
    batch = driver.batch([(driver.add(text), len(text)) for text in texts_of([30, 12])])
    rows = model.forward(batch).hidden
    for wanted in ([], [41], [0, 29, 30]):
        fewer = replace(batch, hidden_rows=np.array(wanted, dtype=np.int32), logit_rows=batch.logit_rows[:1])
        hidden = model.forward(fewer).hidden
        assert hidden.shape == (len(wanted), 64)
        assert_same_bits([hidden], [rows[wanted]])


def test_asking_for_fewer_logits_changes_none(backend_name: str) -> None:
    config = config_of((6, 2, 8, 64, 80), tie_word_embeddings=False, vocab_size=2100)
    maker = Maker(backend_name, config)
    texts = texts_of([30, 1, 12], config.vocab_size)
    model = maker.model(16, 10, num_threads=2)
    driver = Driver(model, 16, 10)
    batch = driver.batch([(driver.add(text), len(text)) for text in texts])
    rows = np.concatenate(maker.lone_logits(texts))
    for wanted in ([], [0], [29, 30, 42], list(range(0, 43, 2))):
        logits = model.forward(replace_rows(batch, wanted)).logits
        assert logits.shape == (len(wanted), 2100)
        assert_same_bits([logits], [rows[wanted]])


def replace_rows(batch: Batch, rows: list[int]) -> Batch:
    return replace(batch, logit_rows=np.array(rows, dtype=np.int32))
