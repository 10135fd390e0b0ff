"""FakeModel is a witness: each kind of mistake with the paged KV must change what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noria.kernels.batch import Batch
from support_fake_model import FakeModel, expected_logits

BLOCK = 4
TOKENS = (7, 3, 9, 9, 1, 30, 2, 8, 5, 6)


def batch(tokens=TOKENS, start: int = 0, table=(5, 2, 7)) -> Batch:
    """One sequence: tokens[start:], of which every row's logits are wanted."""
    positions = np.arange(start, len(tokens), dtype=np.int32)
    blocks = np.array(table, dtype=np.int32)
    return Batch(
        token_ids=np.array(tokens[start:], dtype=np.int32),
        token_types=np.zeros_like(positions),
        positions=positions,
        slots=blocks[positions // BLOCK] * BLOCK + positions % BLOCK,
        query_starts=np.array([0, positions.size], dtype=np.int32),
        context_lens=np.array([len(tokens)], dtype=np.int32),
        block_tables=blocks[None, :],
        logit_rows=np.arange(positions.size, dtype=np.int32),
        hidden_rows=np.arange(positions.size, dtype=np.int32),
    )


@pytest.fixture
def model():
    return FakeModel(num_blocks=12, block_size=BLOCK)


@pytest.mark.parametrize("cut", range(1, len(TOKENS)))
def test_correct_use_gives_the_expected_logits(model, cut):
    first = model.forward(batch(TOKENS[:cut])).logits
    second = model.forward(batch(start=cut)).logits
    assert np.array_equal(np.concatenate((first, second)), expected_logits(TOKENS))


def test_a_copied_block_says_the_same(model):
    model.forward(batch(TOKENS[:9]))
    model.copy_blocks([(2, 11)])
    assert np.array_equal(model.forward(batch(start=9, table=(5, 11, 7))).logits, expected_logits(TOKENS)[9:])


def changed(tokens, index: int) -> tuple[int, ...]:
    return (*tokens[:index], (tokens[index] + 1) % 64, *tokens[index + 1 :])


@pytest.mark.parametrize("index", range(len(TOKENS)))
def test_a_wrong_token_anywhere_changes_the_last_logits(model, index):
    assert not np.array_equal(
        model.forward(batch(changed(TOKENS, index))).logits[-1], expected_logits(TOKENS)[-1]
    )


def test_a_block_overwritten_by_another_sequence_changes_the_logits(model):
    model.forward(batch(TOKENS[:9]))
    model.forward(batch((1, 2, 3, 4), table=(2,)))
    assert not np.array_equal(model.forward(batch(start=9)).logits, expected_logits(TOKENS)[9:])


def test_a_block_of_the_same_tokens_after_another_prefix_changes_the_logits(model):
    other = changed(TOKENS, 0)
    model.forward(batch(TOKENS[:8]))
    model.forward(batch(other[:8], table=(9, 10)))
    # block 10 holds the right tokens at the right positions, but they were computed after another first token
    assert not np.array_equal(
        model.forward(batch(start=8, table=(5, 10, 7))).logits, expected_logits(TOKENS)[8:]
    )


def test_blocks_in_the_wrong_order_change_the_logits(model):
    model.forward(batch(TOKENS[:8]))
    assert not np.array_equal(
        model.forward(batch(start=8, table=(2, 5, 7))).logits, expected_logits(TOKENS)[8:]
    )


def test_kv_that_was_never_written_is_refused(model):
    model.forward(batch(TOKENS[:4]))
    with pytest.raises(AssertionError, match=r"KV of position \[4\] of 8 was never written"):
        model.forward(batch(start=8))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("positions", np.arange(1, 11, dtype=np.int32)),
        ("slots", np.zeros(10, dtype=np.int32)),
        ("slots", np.arange(40, 50, dtype=np.int32)),
        ("token_ids", np.array(TOKENS, dtype=np.int64)),
        ("query_starts", np.array([0, 9], dtype=np.int32)),
        ("context_lens", np.array([9], dtype=np.int32)),
        ("logit_rows", np.array([3, 2], dtype=np.int32)),
        ("logit_rows", np.array([10], dtype=np.int32)),
        ("hidden_rows", np.array([3, 2], dtype=np.int32)),
        ("hidden_rows", np.array([10], dtype=np.int32)),
    ],
)
def test_a_batch_that_breaks_its_contract_is_refused(model, field, value):
    with pytest.raises(AssertionError):
        model.forward(replace(batch(), **{field: value}))
