"""Reading GGUF models: shapes, settings and tokenizers as the file's metadata states them."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from noria.config.errors import ModelError
from noria.config.model import RopeConfig
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.pull import DEFAULT_MODEL, pull
from support_gguf import (
    MINUTE_SHAPE,
    MINUTE_TOKENS,
    TinyShape,
    byte_level_tokens,
    tiny_tensors,
    write_tiny_gguf,
)

VOCAB = len(byte_level_tokens())
BASE = TinyShape()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def open_with(path, arch="llama", **changes):
    write_tiny_gguf(path, arch, shape=MINUTE_SHAPE, tokens=MINUTE_TOKENS, **changes)
    return GgufCheckpoint(path)


def refusal(path, arch="llama", **changes) -> str:
    with pytest.raises(ModelError) as caught:
        open_with(path, arch, **changes)
    return str(caught.value)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_every_tensor_is_listed_and_read_in_its_row_major_shape(path, arch, kind):
    stored = write_tiny_gguf(path, arch, kind=kind)
    checkpoint = GgufCheckpoint(path)
    assert set(checkpoint.tensors) == set(stored)
    for name, values in stored.items():
        assert checkpoint.tensors[name].shape == values.shape
        assert checkpoint.tensors[name].num_elements == values.size
        assert checkpoint.tensors[name].kind == (kind if values.ndim > 1 else "F32")
        assert np.array_equal(checkpoint.read(name), values)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_k_types_are_read_from_files_too(path, kind):
    stored = write_tiny_gguf(
        path, kind=kind, shape=TinyShape(hidden_size=256, intermediate_size=256, head_dim=64)
    )
    checkpoint = GgufCheckpoint(path)
    for name, values in stored.items():
        assert np.array_equal(checkpoint.read(name), values)


def test_raw_bytes_are_those_of_the_file(path):
    write_tiny_gguf(path, kind="Q8_0")
    checkpoint = GgufCheckpoint(path)
    for tensor in GGUFReader(path).tensors:
        raw = checkpoint.read_raw(tensor.name)
        assert raw.tobytes() == tensor.data.tobytes()
        assert raw.size == checkpoint.tensors[tensor.name].num_bytes == tensor.n_bytes
        assert not raw.flags.writeable


def test_raw_bytes_outlive_the_checkpoint(path):
    write_tiny_gguf(path)
    checkpoint = GgufCheckpoint(path)
    raw = checkpoint.read_raw("output_norm.weight")
    before = raw.tobytes()
    checkpoint.close()
    assert raw.tobytes() == before


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_the_shapes_are_the_metadata_s(path, arch):
    write_tiny_gguf(path, arch)
    config = GgufCheckpoint(path).config
    assert (config.architecture, config.vocab_size) == (arch, VOCAB)
    assert (config.hidden_size, config.intermediate_size) == (BASE.hidden_size, BASE.intermediate_size)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 4, 2)
    assert (config.head_dim, config.max_position) == (16, 256)
    assert config.norm_eps == pytest.approx(1e-5)
    assert config.rope == RopeConfig("default", 10000.0)
    assert config.tie_word_embeddings
    assert config.qkv_bias == (arch == "qwen2")
    assert not config.output_bias and not config.mlp_bias
    assert config.windows == ()
    assert (config.bos_token_id, config.eos_token_ids) == (1, (2, 0))


def test_a_real_file_gives_its_published_shapes():
    checkpoint = GgufCheckpoint(pull(DEFAULT_MODEL, lambda stage, done, total: None))
    config = checkpoint.config
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (30, 576, 1536)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.max_position) == (49152, 8192)
    assert config.rope == RopeConfig("default", 100000.0)
    assert config.tie_word_embeddings
    spec = checkpoint.tokenizer
    assert spec.vocabulary is not None
    assert (spec.vocabulary.kind, spec.vocabulary.pre) == ("gpt2", "smollm")
    assert (len(spec.vocabulary.tokens), len(spec.vocabulary.merges)) == (49152, 48900)
    assert spec.vocabulary.tokens[:3] == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    assert dict(spec.special_tokens)["eos_token"] == "<|im_end|>"
    assert "add_generation_prompt" in dict(spec.chat_templates)["default"]


def test_missing_optional_keys_fall_back_on_the_shapes(path):
    absent = ("vocab_size", "attention.head_count_kv", "attention.key_length", "attention.value_length")
    absent += ("rope.dimension_count", "rope.freq_base")
    config = open_with(path, metadata={f"llama.{key}": None for key in absent}).config
    assert config.vocab_size == 4  # rows of the embedding
    assert config.num_kv_heads == 2  # as many as query heads
    assert config.head_dim == 4  # 8 / 2
    assert config.rope == RopeConfig("default", 10000.0)


def test_a_head_may_have_another_size_than_hidden_over_heads(path):
    sizes = {
        "llama.attention.key_length": 6,
        "llama.attention.value_length": 6,
        "llama.rope.dimension_count": 6,
    }
    assert open_with(path, metadata=sizes).config.head_dim == 6


def test_an_output_matrix_unties_the_embedding(path):
    output = np.ones((4, 8), np.float32)
    checkpoint = open_with(path, tensors={"output.weight": output})
    assert not checkpoint.config.tie_word_embeddings
    assert np.array_equal(checkpoint.read("output.weight"), output)


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("attn_q", "qkv_bias"),
        ("attn_k", "qkv_bias"),
        ("attn_v", "qkv_bias"),
        ("attn_output", "output_bias"),
        ("ffn_gate", "mlp_bias"),
        ("ffn_up", "mlp_bias"),
        ("ffn_down", "mlp_bias"),
    ],
)
def test_bias_tensors_switch_their_bias_on(path, part, field):
    config = open_with(path, tensors={f"blk.0.{part}.bias": np.zeros(8, np.float32)}).config
    biases = {name: getattr(config, name) for name in ("qkv_bias", "output_bias", "mlp_bias")}
    assert biases == {name: name == field for name in biases}


def test_a_sliding_window_holds_for_all_layers(path):
    metadata = {"llama.attention.sliding_window": 17}
    write_tiny_gguf(path, metadata=metadata)
    assert GgufCheckpoint(path).config.windows == (17, 17)
    assert open_with(path, metadata={"llama.attention.sliding_window": 0}).config.windows == ()


def test_counts_given_layer_by_layer_are_taken_when_equal(path):
    assert open_with(path, metadata={"llama.attention.head_count_kv": [2]}).config.num_kv_heads == 2
    message = refusal(path, metadata={"llama.feed_forward_length": [8, 16]})
    assert "llama.feed_forward_length must be one whole number, or an array of equal ones" in message


LINEAR = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
YARN = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 256,
}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"llama.rope.freq_base": 1e6}, RopeConfig("default", 1e6)),
        ({"llama.rope.dimension_count": 2}, RopeConfig("default", rotary_dim=2)),
        (LINEAR, RopeConfig("linear", factor=4.0)),
        ({"llama.rope.scale_linear": 2.0}, RopeConfig("linear", factor=2.0)),
        ({"llama.rope.scaling.factor": 8.0}, RopeConfig("linear", factor=8.0)),
        ({**LINEAR, "llama.rope.scaling.factor": 1.0}, RopeConfig("default")),
        ({**LINEAR, "llama.rope.scaling.type": "none"}, RopeConfig("default")),
        (YARN, RopeConfig("yarn", factor=4.0, original_max_position=256)),
        (
            {**YARN, "llama.rope.scaling.yarn_beta_fast": 16.0, "llama.rope.scaling.yarn_beta_slow": 2.0},
            RopeConfig("yarn", factor=4.0, original_max_position=256, beta_fast=16.0, beta_slow=2.0),
        ),
    ],
)
def test_rope_settings(path, metadata, expected):
    assert open_with(path, metadata=metadata).config.rope == expected


def test_yarn_s_attention_factor_multiplies_the_usual_one(path):
    rope = open_with(path, metadata={**YARN, "llama.rope.scaling.attn_factor": 0.5}).config.rope
    assert rope.attention_factor == pytest.approx(0.5 * (1 + 0.1 * np.log(4)))


def test_yarn_reaches_its_factor_times_the_original_context(path):
    assert open_with(path, metadata=YARN).config.max_position == 1024
    longer = {**YARN, "llama.context_length": 2000}
    assert open_with(path, metadata=longer).config.max_position == 2000


def test_rope_frequencies_become_factors_and_stay_listed(path):
    factors = np.array([1.0, 8.0], np.float32)
    checkpoint = open_with(path, tensors={"rope_freqs.weight": factors})
    assert checkpoint.config.rope == RopeConfig("factors", frequency_factors=(1.0, 8.0))
    assert "rope_freqs.weight" in checkpoint.tensors


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tensors": {"rope_freqs.weight": np.ones(3, np.float32)}}, "frequency_factors must hold 2 numbers"),
        ({"tensors": {"rope_freqs.weight": np.zeros(2, np.float32)}}, "finite numbers above 0"),
        ({"tensors": {"rope_freqs.weight": np.full(2, np.nan, np.float32)}}, "finite numbers above 0"),
        (
            {"tensors": {"rope_freqs.weight": np.ones(2, np.float32)}, "metadata": LINEAR},
            "as well as linear rope scaling",
        ),
        ({"metadata": {"llama.rope.scaling.type": "longrope"}}, 'must be "none", "linear" or "yarn"'),
        ({"metadata": {**LINEAR, "llama.rope.scaling.factor": 0.0}}, "must be a finite number above 0"),
        ({"metadata": {**LINEAR, "llama.rope.scaling.factor": float("nan")}}, "must be a finite number"),
        (
            {"metadata": {**LINEAR, "llama.rope.scaling.attn_factor": 2.0}},
            "attn_factor must be 1 with linear",
        ),
        ({"metadata": {**YARN, "llama.rope.scaling.yarn_ext_factor": 0.5}}, "yarn_ext_factor must be 1"),
        ({"metadata": {"llama.rope.dimension_count": 3}}, "rotary dimension must be even and at most"),
        ({"metadata": {"llama.rope.dimension_count": 6}}, "rotary dimension must be even and at most"),
        ({"metadata": {"llama.rope.freq_base": 1.0}}, "must be a finite number above 1"),
    ],
)
def test_ropes_that_cannot_be_served_are_refused(path, changes, words):
    assert words in refusal(path, **changes)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"general.architecture": "gemma3"}, "'gemma3' is not supported; supported are llama, qwen2, qwen3"),
        ({"general.type": "adapter"}, "general.type must be"),
        ({"llama.expert_count": 8}, "llama.expert_count must be 0, other values are not supported, found 8"),
        ({"llama.logit_scale": 0.5}, "llama.logit_scale must be 1.0"),
        ({"llama.attention.causal": False}, "llama.attention.causal must be True"),
        ({"llama.attention.scale": "big"}, "llama.attention.scale must be 0.0"),
        ({"llama.attention.sliding_window_pattern": [True]}, "windows on some layers only"),
        ({"llama.attention.value_length": 2}, "llama.attention.value_length must be 4, the size of a key"),
        ({"llama.attention.head_count_kv": 3}, "must be a multiple of the number of key-value heads (3)"),
        ({"llama.block_count": 1_000_000_000}, "1000000000 layers, but there are only 11 tensors"),
        ({"llama.vocab_size": 3}, "the tokenizer has 4 tokens, more than the model's vocabulary of 3"),
        ({"llama.embedding_length": 9, "llama.attention.key_length": None}, "must be a multiple of"),
    ],
)
def test_models_that_cannot_be_served_are_refused(path, metadata, words):
    assert words in refusal(path, metadata=metadata)


COUNTS = ["context_length", "embedding_length", "feed_forward_length", "block_count", "attention.head_count"]
COUNTS += ["attention.head_count_kv", "attention.key_length", "rope.dimension_count", "vocab_size"]


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.5, "8", True, 2**32 - 1])
def test_counts_of_a_wrong_type_or_range_are_refused(path, key, value):
    message = refusal(path, metadata={f"llama.{key}": value})
    assert f"llama.{key} must be a whole number from 1 to 2147483647, found {value!r}" in message


@pytest.mark.parametrize("value", [0.0, -1e-5, float("inf"), float("nan"), "small", True])
def test_an_epsilon_of_a_wrong_type_or_range_is_refused(path, value):
    message = refusal(path, metadata={"llama.attention.layer_norm_rms_epsilon": value})
    assert "llama.attention.layer_norm_rms_epsilon must be a finite number above 0" in message


REQUIRED = [
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "block_count",
    "attention.head_count",
]


@pytest.mark.parametrize("key", [*REQUIRED, "attention.layer_norm_rms_epsilon"])
def test_missing_required_keys_are_named(path, key):
    assert f"llama.{key} is missing; it must be" in refusal(path, metadata={f"llama.{key}": None})


def test_without_vocabulary_size_and_embedding_the_model_is_refused(path):
    message = refusal(path, metadata={"llama.vocab_size": None}, tensors={"token_embd.weight": None})
    assert "has neither llama.vocab_size nor the tensor token_embd.weight" in message


def test_a_file_without_tensors_is_refused(path):
    nothing = dict.fromkeys(tiny_tensors("llama", MINUTE_SHAPE, 4))
    assert "holds no tensors" in refusal(path, tensors=nothing)


def test_recommended_sampling_values_are_read(path):
    metadata = {
        "general.sampling.temp": 0.5,
        "general.sampling.top_k": 20,
        "general.sampling.penalty_repeat": 1.25,
    }
    defaults = open_with(path, metadata=metadata).generation_defaults
    assert defaults.values == {"temperature": 0.5, "top_k": 20, "repetition_penalty": 1.25}


def test_a_reference_reader_agrees_on_what_the_tests_write(path):
    stored = write_tiny_gguf(path, kind="Q8_0")
    assert {tensor.name for tensor in GGUFReader(path).tensors} == set(stored)
    assert GGUFReader(path).tensors[0].tensor_type == GGMLQuantizationType.Q8_0
