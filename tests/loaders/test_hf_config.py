"""config.json, read as transformers' own configuration classes read it."""

import math

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.masking_utils import sliding_window_causal_mask_function

from noria.config.errors import ModelError
from noria.config.model import ModelConfig, RopeConfig
from noria.loaders.fields import Fields
from noria.loaders.hf_config import HfFiles, model_config

CLASSES = {
    "LlamaForCausalLM": LlamaConfig,
    "MistralForCausalLM": MistralConfig,
    "Qwen2ForCausalLM": Qwen2Config,
    "Qwen3ForCausalLM": Qwen3Config,
}


def read(architecture="LlamaForCausalLM", generation=None, tokenizer_eos=None, **values) -> ModelConfig:
    fields = Fields({"architectures": [architecture], **values}, "config.json")
    return model_config(
        HfFiles(fields, Fields(generation or {}, "generation_config.json"), 1000, tokenizer_eos)
    )


def refusal(architecture="LlamaForCausalLM", **values) -> str:
    with pytest.raises(ModelError) as caught:
        read(architecture, **values)
    return str(caught.value)


def windows_of(config) -> tuple[int, ...]:
    """What transformers makes of the settings, layer by layer; 0 where a layer sees everything."""
    window = getattr(config, "sliding_window", None) or 0
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return (window,) * config.num_hidden_layers
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def assert_reads_like_transformers(architecture: str, values: dict) -> None:
    theirs, ours = CLASSES[architecture](**values), read(architecture, **values)
    assert ours.architecture == theirs.model_type
    assert (ours.vocab_size, ours.hidden_size) == (theirs.vocab_size, theirs.hidden_size)
    assert ours.intermediate_size == theirs.intermediate_size
    assert (ours.num_layers, ours.num_heads) == (theirs.num_hidden_layers, theirs.num_attention_heads)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert ours.head_dim == head_dim
    assert ours.max_position == theirs.max_position_embeddings
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.hidden_act == theirs.hidden_act
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    assert ours.rope.kind == theirs.rope_parameters["rope_type"]
    windows = tuple(ours.window(layer) for layer in range(ours.num_layers))
    assert windows == (windows_of(theirs) if architecture != "LlamaForCausalLM" else (0,) * ours.num_layers)
    eos = theirs.eos_token_id
    assert ours.eos_token_ids == (tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,))
    assert ours.bos_token_id == theirs.bos_token_id


@pytest.mark.parametrize("architecture", CLASSES)
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4},
        {"num_attention_heads": 64, "head_dim": 64},
        {"num_attention_heads": 64, "num_key_value_heads": 32},
        {"max_position_embeddings": 99, "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
        {"rope_theta": 5e5},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1234.5}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_theta": 7e4},
        {"eos_token_id": [5, 6], "bos_token_id": 4},
        {"eos_token_id": None, "bos_token_id": None},
        {"hidden_act": "gelu"},
        {"sliding_window": None},
        {"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 3, "num_hidden_layers": 6},
        {"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 0, "num_hidden_layers": 2},
        {"sliding_window": 128, "use_sliding_window": False, "max_window_layers": 0},
        {"use_sliding_window": True, "max_window_layers": 30},
    ],
)
def test_values_and_defaults_are_those_of_transformers(architecture, values):
    assert_reads_like_transformers(architecture, values)


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_windows_by_layer_type(architecture):
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    values = {"num_hidden_layers": 3, "layer_types": kinds, "use_sliding_window": True, "sliding_window": 7}
    assert_reads_like_transformers(architecture, values)
    assert read(architecture, **values).windows == (0, 7, 7)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def test_null_key_value_heads_are_as_many_as_query_heads(architecture):
    assert_reads_like_transformers(architecture, {"num_attention_heads": 16, "num_key_value_heads": None})


def test_a_window_counts_the_query_s_own_token():
    window = read("MistralForCausalLM", sliding_window=3, num_hidden_layers=1).window(0)
    sees = sliding_window_causal_mask_function(3)
    seen = [key for key in range(10) if sees(0, 0, torch.tensor(6), torch.tensor(key))]
    assert seen == list(range(6 - window + 1, 7))


@pytest.mark.parametrize(
    ("architecture", "values", "biases"),
    [
        ("LlamaForCausalLM", {}, (False, False, False)),
        ("LlamaForCausalLM", {"attention_bias": True}, (True, True, False)),
        ("LlamaForCausalLM", {"mlp_bias": True}, (False, False, True)),
        ("MistralForCausalLM", {"attention_bias": True, "mlp_bias": True}, (False, False, False)),
        ("Qwen2ForCausalLM", {}, (True, False, False)),
        ("Qwen2ForCausalLM", {"attention_bias": True}, (True, False, False)),
        ("Qwen3ForCausalLM", {}, (False, False, False)),
        ("Qwen3ForCausalLM", {"attention_bias": True}, (True, True, False)),
    ],
)
def test_biases_are_those_of_transformers(architecture, values, biases):
    config = read(architecture, **values)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == biases


def test_the_class_s_default_end_token_yields_to_any_stated_one():
    assert read(generation={"eos_token_id": 9}).eos_token_ids == (9,)
    assert read(tokenizer_eos=8).eos_token_ids == (8,)
    assert read(generation={"eos_token_id": [9, 2]}, tokenizer_eos=8, eos_token_id=7).eos_token_ids == (
        9,
        2,
        7,
        8,
    )


def test_the_model_type_stands_in_for_a_missing_architecture():
    assert read_type("qwen3").architecture == "qwen3"
    with pytest.raises(ModelError, match="the architecture 'gemma' is not supported"):
        read_type("gemma")


def read_type(model_type: str) -> ModelConfig:
    fields = Fields({"model_type": model_type}, "config.json")
    return model_config(HfFiles(fields, Fields({}, "generation_config.json"), 1000, None))


ROPES = [
    ({"rope_type": "linear", "factor": 4}, RopeConfig("linear", factor=4.0)),
    ({"rope_type": "dynamic", "factor": 2.0}, RopeConfig("dynamic", factor=2.0, original_max_position=512)),
    (
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256},
        RopeConfig("yarn", factor=2.0, original_max_position=256),
    ),
    (
        {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 128},
        RopeConfig("yarn", factor=4.0, original_max_position=128),
    ),
    (
        {
            "rope_type": "yarn",
            "factor": 1.0,
            "beta_fast": 16,
            "beta_slow": 2,
            "attention_factor": 0.5,
            "truncate": False,
            "mscale": 0.7,
            "mscale_all_dim": 0.8,
        },
        RopeConfig(
            "yarn",
            original_max_position=512,
            beta_fast=16.0,
            beta_slow=2.0,
            attention_factor=0.5,
            truncate=False,
            mscale=0.7,
            mscale_all_dim=0.8,
        ),
    ),
    (
        {
            "rope_type": "longrope",
            "short_factor": [1] * 8,
            "long_factor": [2.5] * 8,
            "original_max_position_embeddings": 128,
        },
        RopeConfig(
            "longrope",
            factor=4.0,
            original_max_position=128,
            short_factor=(1.0,) * 8,
            long_factor=(2.5,) * 8,
        ),
    ),
    (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        RopeConfig("llama3", factor=8.0, original_max_position=64),
    ),
]
SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(("table", "expected"), ROPES)
def test_every_kind_of_rope_is_read_in_both_styles(table, expected):
    assert read(**SMALL, rope_scaling=table).rope == expected
    assert read(**SMALL, rope_parameters={**table, "rope_theta": 10000.0}).rope == expected
    oldest = {"type": table["rope_type"], **{key: table[key] for key in table if key != "rope_type"}}
    assert read(**SMALL, rope_scaling=oldest).rope == expected


@pytest.mark.parametrize(("table", "expected"), ROPES)
def test_transformers_computes_with_the_same_rope_parameters(table, expected):
    theirs = LlamaConfig(**SMALL, rope_scaling=dict(table)).rope_parameters
    assert theirs["rope_theta"] == expected.theta
    if expected.kind in ("yarn", "longrope", "llama3"):
        assert theirs["original_max_position_embeddings"] == expected.original_max_position
    for name in ("factor", "attention_factor", "beta_fast", "truncate", "low_freq_factor"):
        if theirs.get(name) is not None:
            assert getattr(expected, name) == theirs[name]


def test_the_rope_s_own_theta_goes_first():
    table = {"rope_type": "linear", "factor": 2.0, "rope_theta": 111.0}
    assert read(rope_parameters=table, rope_theta=222.0).rope.theta == 111.0
    assert read(rope_theta=222.0).rope.theta == 222.0
    assert math.isclose(read().rope.theta, 10000.0)


def test_an_original_context_beside_the_table_goes_first():
    table = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 100}
    rope = read(**SMALL, rope_scaling=table, original_max_position_embeddings=64).rope
    assert rope.original_max_position == 64


@pytest.mark.parametrize("style", ["beside", "inside"])
def test_a_part_of_each_head_may_turn(style):
    table = {"rope_type": "default"}
    values = {"partial_rotary_factor": 0.5} if style == "beside" else {}
    if style == "inside":
        table["partial_rotary_factor"] = 0.5
    assert read(**SMALL, rope_parameters=table, **values).rope.rotary_dim == 8
    assert read(**SMALL, partial_rotary_factor=1.0).rope.rotary_dim == 0


def test_yarn_reaches_its_factor_times_the_original_context():
    table = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    assert read(**SMALL, rope_scaling=table).max_position == 2048


def test_ropes_given_by_kind_of_layer_must_be_equal():
    one = {"rope_type": "linear", "factor": 2.0}
    both = {"full_attention": one, "sliding_attention": one}
    assert read(rope_parameters=both).rope == RopeConfig("linear", factor=2.0)
    for other in ({"rope_type": "default"}, None):
        table = {"full_attention": one, "sliding_attention": other}
        assert "differs between kinds of layers" in refusal(rope_parameters=table)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"rope_type": "mrope"}, "the rope type 'mrope' is not supported; supported are default, linear"),
        ({"rope_type": 3}, "rope_type must be a string"),
        ({"rope_type": "linear"}, "factor is missing; it must be a finite number above 0"),
        ({"rope_type": "linear", "factor": 0}, "factor must be a finite number above 0, found 0"),
        ({"rope_type": "linear", "factor": 10**400}, "factor must be a finite number above 0"),
        ({"rope_type": "dynamic", "factor": "2"}, "factor must be a finite number above 0, found '2'"),
        ({"rope_type": "yarn", "factor": 2.0, "beta_fast": -1}, "beta_fast must be a finite number above 0"),
        ({"rope_type": "yarn", "factor": 2.0, "truncate": 1}, "truncate must be true or false"),
        ({"rope_type": "longrope"}, "short_factor is missing"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "short_factor must hold 8"),
        ({"rope_type": "longrope", "short_factor": [0] * 8, "long_factor": [1] * 8}, "short_factor must be"),
        ({"rope_type": "llama3", "factor": 8.0}, "low_freq_factor is missing"),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0},
            "high_freq_factor must be above low_freq_factor (4)",
        ),
        ({"rope_type": "default", "rope_theta": 1.0}, "rope_theta must be a finite number above 1"),
        ({"rope_type": "default", "partial_rotary_factor": 1.5}, "must be at most 1, found 1.5"),
        ({"rope_type": "default", "partial_rotary_factor": 0.01}, "leaves no dimension of 16"),
        ({"rope_type": "default", "partial_rotary_factor": 0.2}, "rotary dimension must be even"),
        ({"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 0.125}, "needs at least 4 rotary"),
    ],
)
def test_ropes_that_cannot_be_served_are_refused(table, words):
    assert words in refusal(**SMALL, rope_scaling=table)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"architectures": ["GemmaForCausalLM"]},
            "'GemmaForCausalLM' is not supported; supported are LlamaFor",
        ),
        ({"architectures": []}, "architectures must be a list of one class name"),
        ({"architectures": "LlamaForCausalLM"}, "architectures must be a list of one class name"),
        ({"architectures": [["LlamaForCausalLM"]]}, "architectures must be a list of one class name"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "the weights are quantised (quantization_config: 'gptq'), which is not supported in safetensors; "
            "supported are F32, F16 and BF16",
        ),
        ({"num_attention_heads": 7}, "must be a multiple of the number of attention heads (7)"),
        ({"num_key_value_heads": 5}, "must be a multiple of the number of key-value heads (5)"),
        ({"num_hidden_layers": 10**6}, "says the model has 1000000 layers, but there are only 1000 tensors"),
        ({"eos_token_id": 32000}, "the special token id 32000 is outside the vocabulary of 32000"),
        ({"bos_token_id": -1}, "bos_token_id must be a whole number from 0"),
        ({"head_dim": 63}, "the rotary dimension must be even"),
        ({"hidden_act": 5}, "hidden_act must be a string"),
        ({"layer_types": ["sliding_attention"] * 32}, "layer_types must be full_attention in all layers"),
    ],
)
def test_models_that_cannot_be_served_are_refused(values, words):
    assert words in refusal(**values)


@pytest.mark.parametrize(
    ("architecture", "values", "words"),
    [
        ("MistralForCausalLM", {"layer_types": ["full_attention"] * 32}, "must be sliding_attention in all"),
        ("Qwen2ForCausalLM", {"layer_types": ["full_attention"]}, "layer_types must be a list of 32 times"),
        ("Qwen2ForCausalLM", {"layer_types": ["other"] * 32}, "layer_types must be a list of 32 times"),
        ("Qwen3ForCausalLM", {"layer_types": ["sliding_attention"] * 32}, "no sliding window is in use"),
        ("Qwen3ForCausalLM", {"use_sliding_window": "yes"}, "use_sliding_window must be true or false"),
        ("Qwen3ForCausalLM", {"sliding_window": -4}, "sliding_window must be a whole number"),
    ],
)
def test_windows_that_make_no_sense_are_refused(architecture, values, words):
    assert words in refusal(architecture, **values)


COUNTS = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]
COUNTS += ["num_key_value_heads", "max_position_embeddings", "head_dim"]


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", [0, -8, 2.5, "8", True, [8], 2**31])
def test_counts_of_a_wrong_type_or_range_are_refused(key, value):
    message = refusal(**{key: value})
    assert f"{key} must be a whole number from 1 to 2147483647, found {value!r}" in message


@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("value", [1, "true", []])
def test_flags_of_a_wrong_type_are_refused(key, value):
    assert f"{key} must be true or false, found {value!r}" in refusal(**{key: value})
