"""Checkpoints on disk, through the loader, to logits; and what a built model offers beside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noria.loaders.resolve import open_checkpoint
from support_batches import Driver
from support_models import cached_checkpoint, load, random_model, small_config, write_checkpoint


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_checkpoint_on_disk_gives_the_logits_of_transformers(tmp_path, architecture: str) -> None:
    reference = write_checkpoint(tmp_path, architecture, num_shards=3)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    checkpoint = open_checkpoint(str(tmp_path))
    driver = Driver(load(checkpoint, 8, 8), 8, 8)
    checkpoint.close()
    token_ids = list(range(0, 300, 7))
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0].numpy()
    np.testing.assert_allclose(driver.run_alone(driver.add(token_ids)), expected, atol=1e-4)


def test_a_cached_checkpoint_is_made_once_a_session() -> None:
    assert cached_checkpoint("llama") == cached_checkpoint("llama")
    assert cached_checkpoint("llama") != cached_checkpoint("llama", num_hidden_layers=1)


def test_copied_blocks_serve_another_sequence() -> None:
    model = random_model(small_config(), block_size=4, num_blocks=8)
    driver = Driver(model, 4, 8)
    first = driver.add([5, 6, 7, 8, 9, 10, 11, 12])
    driver.run_alone(first)
    expected_driver = Driver(random_model(small_config(), 4, 8), 4, 8)
    expected = expected_driver.run_alone(expected_driver.add([5, 6, 7, 8, 9, 10, 11, 12, 13]))[-1]

    second = driver.add_sharing(first, [13])
    copies = [driver.take_block(), driver.take_block()]
    model.copy_blocks(list(zip(driver.table(second), copies, strict=True)))
    driver.replace_blocks(second, copies)
    np.testing.assert_array_equal(driver.run_alone(second)[-1], expected)


def test_logits_are_made_afresh_by_each_forward() -> None:
    model = random_model(small_config(), 8, 4)
    driver = Driver(model, 8, 4)
    sequence = driver.add([1, 2, 3, 4])
    batch = driver.batch([(sequence, 4)])
    first = model.forward(batch).logits
    first[:] = 0
    second = model.forward(batch).logits
    assert second.any()
    assert not np.shares_memory(first, second)
