"""Every architecture and variant against transformers in float32: in one go, and in chunks over paged KV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from noria.config.model import ModelConfig, RopeConfig
from support_batches import Driver
from support_models import MemoryFile, hf_config, hf_model, load

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


def model_config(config: Any) -> ModelConfig:
    """What a loader makes of a transformers configuration, as far as the cases go."""
    kind, table = config.model_type, dict(config.rope_parameters)
    names = {
        "rope_type": "kind",
        "rope_theta": "theta",
        "original_max_position_embeddings": "original_max_position",
    }
    values = {names.get(key, key): tuple(v) if isinstance(v, list) else v for key, v in table.items()}
    window = getattr(config, "sliding_window", None) or 0
    layer_types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    bias = getattr(config, "attention_bias", False)
    return ModelConfig(
        architecture=kind,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        max_position=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope=RopeConfig(**values),
        tie_word_embeddings=config.tie_word_embeddings,
        hidden_act=config.hidden_act,
        qkv_bias=bias or kind == "qwen2",
        output_bias=bias,
        mlp_bias=getattr(config, "mlp_bias", False),
        windows=tuple(window if layer == "sliding_attention" else 0 for layer in layer_types),
    )


def stored(model: Any, config: ModelConfig) -> MemoryFile:
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del arrays["lm_head.weight"]
    return MemoryFile("safetensors", config, arrays)


def expected_logits(model: Any, token_ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([token_ids])).logits[0].numpy()


@pytest.mark.parametrize("name", CASES)
def test_logits_of_all_positions_equal_transformers_however_they_are_computed(name: str) -> None:
    architecture, overrides = CASES[name]
    reference = hf_model(hf_config(architecture, **overrides))
    model = load(stored(reference, model_config(reference.config)), BLOCK_SIZE, NUM_BLOCKS)
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
