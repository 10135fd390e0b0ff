"""Every architecture and variant, written to disk and loaded, against transformers in float32: in one go, and in
chunks over paged KV.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from noria.loaders.resolve import open_checkpoint
from support_batches import Driver
from support_models import load, write_checkpoint

BLOCK_SIZE = 8
NUM_BLOCKS = 40
TOLERANCE = 1e-4


def rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **values}}


LONG = [1.0 + 0.7 * i for i in range(4)]
SHORT = [1.0 + 0.1 * i for i in range(4)]
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama with a tanh gate": ("llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "llama without groups": ("llama", {"num_attention_heads": 3, "num_key_value_heads": 3}),
    "llama in groups of 4": ("llama", {"num_attention_heads": 4, "num_key_value_heads": 1}),
    "llama in groups of 8": ("llama", {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 10}),
    "llama, 3 layers": ("llama", {"num_hidden_layers": 3}),
    "mistral": ("mistral", {}),
    "mistral with a window": ("mistral", {"sliding_window": 7}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2 with windows in deep layers": (
        "qwen2",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {}),
    "qwen3 tied with biases": ("qwen3", {"tie_word_embeddings": True, "attention_bias": True}),
    "rope linear": ("llama", rope("linear", factor=4.0)),
    "rope dynamic": ("llama", rope("dynamic", factor=4.0)),
    "rope yarn": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    "rope yarn with all settings": (
        "qwen3",
        rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=32,
            beta_fast=24.0,
            beta_slow=2.0,
            truncate=False,
            mscale=0.8,
            mscale_all_dim=0.5,
        ),
    ),
    "rope yarn with an attention factor": (
        "llama",
        rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.3),
    ),
    "rope longrope beyond the original length": (
        "llama",
        rope(
            "longrope", factor=8.0, original_max_position_embeddings=20, short_factor=SHORT, long_factor=LONG
        ),
    ),
    "rope longrope within the original length": (
        "llama",
        rope(
            "longrope",
            factor=1.0,
            original_max_position_embeddings=512,
            short_factor=SHORT,
            long_factor=LONG,
            attention_factor=1.1,
        ),
    ),
    "rope llama3": ("llama", rope("llama3", **LLAMA3)),
}

GROUPS = {
    1: {"num_attention_heads": 3, "num_key_value_heads": 3},
    3: {},
    4: {"num_attention_heads": 4, "num_key_value_heads": 1},
    8: {"num_attention_heads": 8, "num_key_value_heads": 1, "hidden_size": 64},
}
for _architecture in ("mistral", "qwen2", "qwen3"):
    for _group, _heads in GROUPS.items():
        CASES[f"{_architecture} in groups of {_group}"] = (_architecture, _heads)


def expected_logits(model: Any, token_ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([token_ids])).logits[0].numpy()


@pytest.mark.parametrize("name", CASES)
def test_logits_of_all_positions_equal_transformers_however_they_are_computed(
    name: str, tmp_path: Path
) -> None:
    architecture, overrides = CASES[name]
    reference = write_checkpoint(tmp_path, architecture, num_shards=2, **overrides)
    model = load(open_checkpoint(str(tmp_path)), BLOCK_SIZE, NUM_BLOCKS)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, reference.config.vocab_size, length).tolist() for length in (41, 29, 33)]
    expected = [expected_logits(reference, text) for text in texts]

    whole = Driver(model, BLOCK_SIZE, NUM_BLOCKS)
    np.testing.assert_allclose(whole.run_alone(whole.add(texts[0])), expected[0], atol=TOLERANCE)

    mixed = Driver(model, BLOCK_SIZE, NUM_BLOCKS)
    for text in texts:
        mixed.add(text)
    mixed.run_mixed(longest_chunk=12)
    for sequence, logits in enumerate(expected):
        np.testing.assert_allclose(mixed.logits(sequence), logits, atol=TOLERANCE)
