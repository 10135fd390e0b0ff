"""Damaged and hostile safetensors files: refused at opening, by a ModelError, whatever is wrong."""

import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.errors import ModelError
from noria.loaders.safetensors_checkpoint import SafetensorsCheckpoint
from noria.loaders.safetensors_file import read_safetensors
from support_safetensors import tiny_tensors, write_raw_safetensors, write_tiny_directory


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def refusal(path, header, body: bytes = b"") -> str:
    write_raw_safetensors(path, header, body)
    with pytest.raises(ModelError) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    tensors = {"model.norm.weight": np.arange(4, dtype=np.float32), "model.x": np.ones((2, 3), np.float32)}
    write_tiny_directory(directory, config={"num_hidden_layers": 1}, tensors=tensors)
    return directory


@pytest.fixture(scope="module")
def whole(directory) -> bytes:
    return (directory / "model.safetensors").read_bytes()


def test_a_file_cut_anywhere_is_refused(path, whole):
    path.write_bytes(whole)
    for length in reversed(range(len(whole))):
        os.truncate(path, length)
        with pytest.raises(ModelError, match=r"truncated|the file is empty"):
            read_safetensors(path)
    path.write_bytes(whole)
    assert set(read_safetensors(path).tensors) == {"model.norm.weight", "model.x"}


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_changed_bytes_of_the_weights_either_load_or_are_refused(directory, whole, data):
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    _opens_or_is_refused(directory, "model.safetensors", bytes(damaged))


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json"]
)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_changed_bytes_of_the_other_files_either_load_or_are_refused(directory, name, data):
    contents = {
        "generation_config.json": b'{"eos_token_id": [2, 1], "temperature": 0.5, "top_k": 4}',
        "tokenizer_config.json": b'{"eos_token": {"content": "a"}, "chat_template": [{"name": "b", "template": "c"}]}',
    }
    before = contents.get(name) or (directory / name).read_bytes()
    damaged = bytearray(before)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(before) - 1))] = data.draw(st.integers(0, 255))
    _opens_or_is_refused(directory, name, bytes(damaged))


def _opens_or_is_refused(directory, name, content):
    path = directory / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    try:
        checkpoint = SafetensorsCheckpoint(directory)
        for tensor, info in checkpoint.tensors.items():
            assert checkpoint.read(tensor).shape == info.shape
    except ModelError as error:
        assert str(directory) in str(error)
    finally:
        path.unlink() if before is None else path.write_bytes(before)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CONFIG_KEYS = ["architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size"]
CONFIG_KEYS += ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings"]
CONFIG_KEYS += ["rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "tie_word_embeddings"]
CONFIG_KEYS += ["bos_token_id", "eos_token_id", "head_dim", "hidden_act", "attention_bias", "mlp_bias"]
CONFIG_KEYS += ["sliding_window", "use_sliding_window", "max_window_layers", "layer_types"]
CONFIG_KEYS += ["partial_rotary_factor", "quantization_config", "original_max_position_embeddings"]


@pytest.mark.parametrize(
    "architecture", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]
)
@given(changes=st.dictionaries(st.sampled_from(CONFIG_KEYS), JSON_VALUES, min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_json_in_any_config_key_either_loads_or_is_refused(directory, architecture, changes):
    config = json.loads((directory / "config.json").read_text())
    content = json.dumps({**config, "architectures": [architecture], **changes})
    _opens_or_is_refused(directory, "config.json", content.encode())


ROPE_KEYS = ["rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings"]
ROPE_KEYS += ["low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "truncate"]
ROPE_KEYS += ["attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor"]
ROPE_KEYS += ["partial_rotary_factor", "full_attention", "sliding_attention"]


@pytest.mark.parametrize("kind", ["default", "linear", "dynamic", "yarn", "longrope", "llama3"])
@given(changes=st.dictionaries(st.sampled_from(ROPE_KEYS), JSON_VALUES, max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_json_in_any_rope_key_either_loads_or_is_refused(directory, kind, changes):
    rope = {"rope_type": kind, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope.update({"short_factor": [1.0] * 8, "long_factor": [2.0] * 8})
    config = json.loads((directory / "config.json").read_text())
    content = json.dumps({**config, "rope_parameters": {**rope, **changes}})
    _opens_or_is_refused(directory, "config.json", content.encode())


def test_an_absurd_header_length_is_refused_without_allocating(path):
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelError, match="its header claims 9223372036854775808 bytes"):
        read_safetensors(path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("nonsense", "header: not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"a": {}, "a": {}}', "the key 'a' appears twice"),
        ({"t": 5}, "tensor 't' must be described by an object, found 5"),
        ({"t": entry(dtype="F8_E4M3")}, "'F8_E4M3', which is not supported; supported are F32, F16, BF16"),
        ({"t": entry(dtype="I32")}, "'I32', which is not supported"),
        ({"t": entry(dtype=["F32"])}, "which is not supported"),
        ({"t": {"dtype": "F32"}}, "must have a shape"),
        ({"t": entry(shape=(-2,))}, "must have a shape"),
        ({"t": entry(shape=(2.0,))}, "must have a shape"),
        ({"t": entry(shape=(True, 2))}, "must have a shape"),
        ({"t": entry(shape=(1,) * 9)}, "must have a shape of at most 8 sizes"),
        ({"t": entry(shape=(0, 2), offsets=(0, 0))}, "is empty: its shape is [0, 2]"),
        ({"t": entry(offsets=(0,))}, "must have data_offsets [begin, end]"),
        ({"t": entry(offsets=(8, 0))}, "needs 8 bytes, its data_offsets [8, 0] give -8"),
        ({"t": entry(offsets=(0, 4))}, "needs 8 bytes, its data_offsets [0, 4] give 4"),
        ({"t": entry(shape=(2**40, 2**40))}, "needs 4835703278458516698824704 bytes"),
        ({"t": entry(offsets=(8, 16))}, "tensor 't' is not next to another one"),
        ({"a": entry(), "b": entry(offsets=(4, 12))}, "tensor 'b' overlaps another one"),
        ({"a": entry(), "b": entry()}, "tensor 'b' overlaps another one"),
        ({"a": entry()}, "8 bytes after the last tensor belong to none"),
        ({"a": entry(shape=(6,), offsets=(0, 24))}, "truncated: the tensors end at"),
    ],
)
def test_headers_that_cannot_be_true_are_refused(path, header, words):
    assert words in refusal(path, header, bytes(16))


def test_metadata_of_the_file_is_no_tensor(path):
    write_raw_safetensors(path, {"__metadata__": {"format": "pt"}, "t": entry()}, bytes(8))
    assert set(read_safetensors(path).tensors) == {"t"}


def test_a_file_without_tensors_is_no_model(tmp_path):
    write_tiny_directory(tmp_path, tensors={})
    with pytest.raises(ModelError, match="holds no tensors"):
        SafetensorsCheckpoint(tmp_path)


def test_the_tiny_directory_of_these_tests_is_a_model(tmp_path):
    write_tiny_directory(tmp_path)
    assert set(SafetensorsCheckpoint(tmp_path).tensors) == set(tiny_tensors())
