"""GGUF's names and its order of rows for the rotation give the same model as safetensors."""

from __future__ import annotations

import numpy as np
import pytest

from noria.config.model import ModelConfig, RopeConfig
from noria.models.names import name_map
from noria.models.registry import architecture
from noria.models.rope import rope_frequencies
from support_batches import Driver
from support_models import MemoryFile, load, random_file, small_config


def interleaved(array: np.ndarray, num_heads: int) -> np.ndarray:
    """Row for row what converters store for Llama: of each head, rows 0, h, 1, h + 1, ... with h half its size."""
    head_dim = len(array) // num_heads
    half = head_dim // 2
    rows = [
        head * head_dim + i + part * half for head in range(num_heads) for i in range(half) for part in (0, 1)
    ]
    return array[rows]


def as_gguf(file: MemoryFile, config: ModelConfig) -> MemoryFile:
    """The same model under GGUF's names, with q and k of Llama models as converters store them."""
    theirs, ours = name_map("gguf", config), name_map("safetensors", config)
    arrays = {}
    for name in architecture(config).shapes(config):
        array = file.arrays[ours.file_name(name)]
        part = name.split(".")[2] if name.startswith("layers") else ""
        if config.architecture == "llama" and part in ("q", "k"):
            array = interleaved(array, config.num_heads if part == "q" else config.num_kv_heads)
        arrays[theirs.file_name(name)] = array
    return MemoryFile("gguf", config, arrays)


def logits(file: MemoryFile) -> np.ndarray:
    driver = Driver(load(file, 16, 4), 16, 4)
    return driver.run_alone(driver.add(list(range(1, 40))))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_a_model_is_the_same_from_either_format(kind: str, bias: bool) -> None:
    config = small_config(architecture=kind, qkv_bias=bias, tie_word_embeddings=bias)
    file = random_file(config)
    np.testing.assert_array_equal(logits(as_gguf(file, config)), logits(file))


def test_names_are_those_of_gguf_files() -> None:
    config = small_config(
        architecture="qwen3", num_layers=1, qkv_bias=True, output_bias=True, tie_word_embeddings=False
    )
    assert set(random_file(config, "gguf").arrays) == {
        "token_embd.weight",
        "output_norm.weight",
        "output.weight",
        "blk.0.attn_norm.weight",
        "blk.0.attn_q.weight",
        "blk.0.attn_q.bias",
        "blk.0.attn_q_norm.weight",
        "blk.0.attn_k.weight",
        "blk.0.attn_k.bias",
        "blk.0.attn_k_norm.weight",
        "blk.0.attn_v.weight",
        "blk.0.attn_v.bias",
        "blk.0.attn_output.weight",
        "blk.0.attn_output.bias",
        "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",
        "blk.0.ffn_down.weight",
    }


def test_frequency_factors_stand_for_llama3_scaling() -> None:
    scaled = RopeConfig(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=64
    )
    config = small_config(head_dim=16, rope=scaled)
    base, _ = rope_frequencies(small_config(head_dim=16), 10)
    factors = tuple((base / rope_frequencies(config, 10)[0]).tolist())
    by_factors = small_config(head_dim=16, rope=RopeConfig("factors", frequency_factors=factors))
    file = random_file(config)
    np.testing.assert_allclose(logits(as_gguf(file, by_factors)), logits(file), atol=1e-4)
