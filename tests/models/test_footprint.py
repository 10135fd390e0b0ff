from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch

from noria.config.errors import ConfigError, ModelError
from noria.config.model import RopeConfig
from noria.kernels.torch_ops.backend import TILES_BYTES
from noria.kernels.torch_ops.linear import PANEL_ROWS as BACKEND_PANEL_ROWS
from noria.models.build import BuiltModel
from noria.models.footprint import ATTENTION_BYTES, PANEL_ROWS, footprint
from support_models import random_model, small_config

CONFIGS: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": False},
    {"qkv_bias": True, "output_bias": True, "mlp_bias": True, "num_layers": 3},
    {"architecture": "mistral", "num_kv_heads": 6},
    {"architecture": "qwen2", "qkv_bias": True, "num_kv_heads": 1},
    {"architecture": "qwen3", "head_dim": 12},
]


def tensors_in(thing: object) -> dict[int, torch.Tensor]:
    """Every tensor in a model's parts, by address: a shared one counts once."""
    if isinstance(thing, torch.Tensor):
        return {thing.data_ptr(): thing}
    parts = thing if isinstance(thing, list | tuple) else []
    if is_dataclass(thing):
        parts = [getattr(thing, field.name) for field in fields(thing)]
    return {address: tensor for part in parts for address, tensor in tensors_in(part).items()}


def weights_of(model: BuiltModel) -> dict[int, torch.Tensor]:
    return tensors_in(list(vars(model._program._forward.__self__).values()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("overrides", CONFIGS)
def test_weights_take_the_bytes_foretold(overrides: dict[str, Any], dtype: str) -> None:
    config = small_config(**overrides)
    model = random_model(config, 16, 4, dtype=dtype, max_model_len=100)
    foretold = footprint(config, dtype)
    held = sum(tensor.nbytes for tensor in weights_of(model).values())
    rope_bytes = 100 * config.head_dim * 4
    assert held == foretold.weights_bytes + rope_bytes
    assert rope_bytes <= 100 * foretold.workspace_bytes_per_context_token


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_cache_takes_the_bytes_foretold_for_its_tokens_and_one_more(dtype: str) -> None:
    config = small_config()
    cache = random_model(config, 16, 4, dtype=dtype)._backend._cache
    assert cache._kv.nbytes == (16 * 4 + 1) * footprint(config, dtype).kv_bytes_per_token


@pytest.mark.parametrize("kv_dtype", ["float32", "float16"])
def test_a_cache_in_a_format_of_its_own_takes_the_bytes_foretold(kv_dtype: str) -> None:
    config = small_config()
    cache = random_model(config, 16, 4, dtype="bfloat16", kv_dtype=kv_dtype)._backend._cache
    assert cache._kv.nbytes == (16 * 4 + 1) * footprint(config, "bfloat16", kv_dtype).kv_bytes_per_token


def test_int8_takes_a_scale_for_each_value_and_for_every_32_dimensions_of_a_key() -> None:
    for head_dim, num_scales in ((64, 3), (40, 3), (32, 2), (8, 2)):
        config = small_config(head_dim=head_dim)
        expected = 2 * 2 * (2 * head_dim + 4 * num_scales)
        assert footprint(config, "float32", "int8").kv_bytes_per_token == expected
    with pytest.raises(
        ConfigError, match="'int4' is not supported; supported: float32, bfloat16, float16, int8"
    ):
        footprint(small_config(), "float32", "int4")


def test_the_fixed_workspace_covers_what_the_backend_takes_at_once() -> None:
    assert ATTENTION_BYTES >= 2 * TILES_BYTES
    assert PANEL_ROWS == BACKEND_PANEL_ROWS


def test_the_workspace_covers_the_largest_tensor_while_it_is_read() -> None:
    wide = footprint(small_config(vocab_size=1_000_000), "bfloat16")
    assert wide.workspace_bytes == 1_000_000 * 48 * 4


def test_the_workspace_of_a_small_model_is_that_of_a_step() -> None:
    sizes = footprint(small_config(), "bfloat16")
    assert sizes.workspace_bytes == ATTENTION_BYTES + PANEL_ROWS * 80 * 4


def test_the_longest_sequence_is_what_the_rotation_can_serve() -> None:
    rope = RopeConfig("dynamic", factor=4.0, original_max_position=300)
    assert footprint(small_config(max_position=900), "float32").max_position == 900
    assert footprint(small_config(max_position=900, rope=rope), "float32").max_position == 300


def test_a_model_of_known_size() -> None:
    """SmolLM2-135M: 134,515,008 weights, of which 61 norms of 576 stay in float32."""
    config = small_config(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
    )
    assert footprint(config, "float32").weights_bytes == 134_515_008 * 4
    assert footprint(config, "bfloat16").weights_bytes == 134_515_008 * 2 + 61 * 576 * 2
    assert footprint(config, "bfloat16").kv_bytes_per_token == 2 * 30 * 3 * 64 * 2


def test_sizes_need_no_weights_however_large() -> None:
    config = small_config(vocab_size=150_000, hidden_size=2**15, intermediate_size=2**17, num_layers=100)
    assert footprint(config, "bfloat16").weights_bytes > 10**12


def test_an_unknown_dtype_is_refused_with_those_supported() -> None:
    with pytest.raises(ConfigError, match="'float8' is not supported; supported: float32, bfloat16, float16"):
        footprint(small_config(), "float8")


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ModelError, match="'rwkv' is not supported"):
        footprint(small_config(architecture="rwkv"), "float32")


def test_numbers_are_plain_integers() -> None:
    sizes, words = footprint(small_config(), "float32"), ("dtype", "quantization", "kv_dtype", "keeps_kv")
    assert all(type(getattr(sizes, name)) is int for name in sizes.__slots__ if name not in words)
    assert not isinstance(sizes.weights_bytes, np.integer)
