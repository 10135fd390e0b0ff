from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from noria.config.errors import ModelError
from noria.config.model import RopeConfig
from noria.models.rope import max_usable_position, rope_frequencies, rope_table, rotary_dim
from support_models import hf_config, small_config

FACTORS = {"short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [1.5 + i for i in range(8)]}

# (kind, its keys in a transformers configuration, the length served)
KINDS: list[tuple[str, dict[str, Any], int]] = [
    ("linear", {"factor": 3.0}, 400),
    ("dynamic", {"factor": 3.0}, 400),
    ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}, 400),
    ("llama3", {"factor": 32.0, "low_freq_factor": 2.0, "high_freq_factor": 9.5}, 400),
    ("yarn", {"factor": 4.0}, 400),
    ("yarn", {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7}, 400),
    ("yarn", {"factor": 4.0, "truncate": False, "beta_fast": 20.0, "beta_slow": 3.0}, 400),
    ("yarn", {"factor": 4.0, "attention_factor": 0.9}, 400),
    ("longrope", {"factor": 8.0, **FACTORS}, 100),
    ("longrope", {"factor": 8.0, **FACTORS}, 101),
    ("longrope", {"factor": 1.0, **FACTORS}, 101),
    ("longrope", {"factor": 8.0, "attention_factor": 1.2, **FACTORS}, 101),
]


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize(("kind", "keys", "length"), KINDS)
def test_frequencies_equal_transformers(kind: str, keys: dict[str, Any], length: int, theta: float) -> None:
    table = {"rope_type": kind, "rope_theta": theta, **keys}
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in keys.items()}
    if kind in ("llama3", "yarn", "longrope"):
        table["original_max_position_embeddings"] = values["original_max_position"] = 100
    reference = hf_config("llama", head_dim=16, max_position_embeddings=400, rope_parameters=table)
    expected, scale = ROPE_INIT_FUNCTIONS[kind](reference, "cpu", seq_len=length)

    config = small_config(head_dim=16, max_position=400, rope=RopeConfig(kind, theta, **values))
    found, found_scale = rope_frequencies(config, length)
    np.testing.assert_allclose(found, expected.numpy(), rtol=3e-7)
    assert found_scale == pytest.approx(scale, rel=1e-12)


def test_factors_divide_the_base_frequencies() -> None:
    base, _ = rope_frequencies(small_config(), 10)
    config = small_config(rope=RopeConfig("factors", frequency_factors=(1.0, 2.0, 4.0, 8.0)))
    found, scale = rope_frequencies(config, 10)
    np.testing.assert_allclose(found, base / np.array([1, 2, 4, 8]), rtol=1e-7)
    assert scale == 1.0


@pytest.mark.parametrize("rotary", [0, 2, 6, 8])
def test_the_table_holds_cosines_then_sines_of_each_position(rotary: int) -> None:
    config = small_config(rope=RopeConfig(rotary_dim=rotary))
    dim = rotary or 8
    table = rope_table(config, 37)
    assert table.shape == (37, dim)
    assert table.dtype == np.float32
    angles = np.arange(37)[:, None] * 10000.0 ** -(np.arange(0, dim, 2) / dim)
    np.testing.assert_allclose(table, np.concatenate([np.cos(angles), np.sin(angles)], 1), atol=3e-6)


def test_the_attention_factor_scales_cosines_and_sines() -> None:
    rope = RopeConfig("yarn", factor=4.0, original_max_position=64, attention_factor=2.0)
    table = rope_table(small_config(rope=rope), 5)
    np.testing.assert_allclose(table[0], [2.0] * 4 + [0.0] * 4)


def test_dynamic_scaling_serves_the_original_length_and_says_so() -> None:
    config = small_config(max_position=400, rope=RopeConfig("dynamic", factor=2.0, original_max_position=100))
    assert max_usable_position(config) == 100
    assert rope_table(config, 100).shape == (100, 8)
    with pytest.raises(ModelError, match="up to the original length of 100 tokens; max_model_len is 101"):
        rope_table(config, 101)


def test_dynamic_scaling_without_an_original_length_serves_the_stated_one() -> None:
    assert max_usable_position(small_config(max_position=400, rope=RopeConfig("dynamic"))) == 400


@pytest.mark.parametrize("kind", ["default", "linear", "yarn", "llama3", "longrope", "factors"])
def test_every_other_kind_serves_the_whole_length(kind: str) -> None:
    rope = RopeConfig(kind, original_max_position=100)
    assert max_usable_position(small_config(max_position=400, rope=rope)) == 400


@settings(max_examples=30, deadline=None)
@given(dim=st.integers(-3, 20))
def test_a_rotary_dimension_is_even_and_within_the_head(dim: int) -> None:
    config = small_config(head_dim=12, rope=RopeConfig(rotary_dim=dim))
    if dim == 0:
        assert rotary_dim(config) == 12
    elif dim > 0 and dim % 2 == 0 and dim <= 12:
        assert rotary_dim(config) == dim
    else:
        with pytest.raises(
            ModelError, match=rf"rotary_dim is {dim}; it must be even and at most head_dim.*12"
        ):
            rotary_dim(config)


@pytest.mark.parametrize(
    ("kind", "field", "length"),
    [("factors", "frequency_factors", 10), ("longrope", "short_factor", 10), ("longrope", "long_factor", 60)],
)
def test_a_wrong_number_of_factors_names_the_field(kind: str, field: str, length: int) -> None:
    factors = {"short_factor": (1.0,) * 4, "long_factor": (1.0,) * 4} if kind == "longrope" else {}
    rope = RopeConfig(kind, original_max_position=50, **{**factors, field: (1.0, 2.0, 3.0)})
    with pytest.raises(ModelError, match=f"{field} holds 3 numbers, expected 4"):
        rope_table(small_config(rope=rope), length)


def test_an_unknown_kind_is_refused_with_those_supported() -> None:
    with pytest.raises(ModelError, match="'spiral' is not supported; supported: default, dynamic, factors"):
        rope_table(small_config(rope=RopeConfig("spiral")), 10)
