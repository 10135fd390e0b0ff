"""How far int8 activations and the KV cache's format move the embedded model, on a fixed text."""

from __future__ import annotations

import numpy as np
import pytest

from noria.config.resolve import resolve_kv_dtype
from noria.loaders.resolve import open_checkpoint
from noria.models.stored import StoredModel
from noria.tokenize.tokenizer import build_tokenizer
from support_accuracy import TEXT, WidenedModel, log_probabilities
from support_embedded import embedded_model


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Log-probabilities of the model as it is served by default and of its numbers in float32; the text's ids."""
    checkpoint = open_checkpoint(str(embedded_model()))
    token_ids = build_tokenizer(checkpoint.tokenizer).encode(TEXT)
    stored = StoredModel(checkpoint)
    kv_dtype = resolve_kv_dtype("auto", "float32", "native")
    quantised = log_probabilities(stored, stored, token_ids, kv_dtype=kv_dtype)
    return quantised, log_probabilities(WidenedModel(stored), stored, token_ids), token_ids


def test_the_distributions_are_close(pair: tuple[np.ndarray, np.ndarray, list[int]]) -> None:
    quantised, exact, token_ids = pair
    assert len(token_ids) > 400
    divergence = (np.exp(exact) * (exact - quantised)).sum(-1)
    assert divergence.mean() < 2e-3
    assert (quantised.argmax(-1) == exact.argmax(-1)).mean() > 0.95


def test_the_perplexity_is_the_same_within_half_a_percent(
    pair: tuple[np.ndarray, np.ndarray, list[int]],
) -> None:
    quantised, exact, token_ids = pair
    follows = (np.arange(len(token_ids) - 1), token_ids[1:])
    found, expected = (np.exp(-one[follows].mean()) for one in (quantised, exact))
    assert abs(found / expected - 1) < 0.005


def test_keys_and_values_of_16_bits_hardly_move_the_distributions(
    pair: tuple[np.ndarray, np.ndarray, list[int]],
) -> None:
    """On float weights: beside quantised ones the smallest change draws the rounding of activations anew."""
    _, exact, token_ids = pair
    stored = StoredModel(open_checkpoint(str(embedded_model())))
    rounded = log_probabilities(WidenedModel(stored), stored, token_ids, kv_dtype="float16")
    divergence = (np.exp(exact) * (exact - rounded)).sum(-1)
    assert 0 < divergence.mean() < 1e-5
