"""Reading Hugging Face model directories: tensors, tokenizer files and recommended sampling values."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from noria.config.errors import ModelError
from noria.loaders.safetensors_checkpoint import SafetensorsCheckpoint
from support_safetensors import (
    TINY_CONFIG,
    tiny_tensors,
    tokenizer_json,
    write_safetensors,
    write_tiny_directory,
)


def open_with(tmp_path, **changes):
    write_tiny_directory(tmp_path, **changes)
    return SafetensorsCheckpoint(tmp_path)


def refusal(tmp_path, **changes) -> str:
    with pytest.raises(ModelError) as caught:
        open_with(tmp_path, **changes)
    return str(caught.value)


def test_every_tensor_is_listed_and_read(tmp_path):
    checkpoint = open_with(tmp_path)
    assert checkpoint.format == "safetensors"
    assert set(checkpoint.tensors) == set(tiny_tensors())
    for name, values in tiny_tensors().items():
        info = checkpoint.tensors[name]
        assert (info.name, info.shape, info.kind, info.num_bytes) == (
            name,
            values.shape,
            "F32",
            values.nbytes,
        )
        assert np.array_equal(checkpoint.read(name), values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_files_of_the_reference_writer_give_its_numbers(tmp_path, dtype):
    random = torch.Generator().manual_seed(0)
    tensors = {
        "a": torch.randn(3, 5, generator=random).to(dtype),
        "model.b": torch.tensor([0.0, -0.0, 1e-40, float("inf"), float("nan"), 65504.0]).to(dtype),
        "scalar": torch.tensor(2.5).to(dtype),
    }
    write_tiny_directory(tmp_path, config={"num_hidden_layers": 1})
    save_torch_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    checkpoint = SafetensorsCheckpoint(tmp_path)
    for name, tensor in tensors.items():
        found = checkpoint.read(name)
        assert found.dtype == np.float32 and found.shape == tuple(tensor.shape)
        assert np.array_equal(found, tensor.float().numpy(), equal_nan=True)
        assert (
            checkpoint.read_raw(name).tobytes()
            == tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )


def test_a_read_tensor_is_fresh_and_a_raw_one_outlives_the_checkpoint(tmp_path):
    checkpoint = open_with(tmp_path)
    checkpoint.read("model.norm.weight")[:] = 7.0
    raw = checkpoint.read_raw("model.norm.weight")
    checkpoint.close()
    assert raw.tobytes() == tiny_tensors()["model.norm.weight"].tobytes()
    assert not raw.flags.writeable


def write_shards(tmp_path, owners=None, **changes):
    """Two shards and their index; owners replaces entries of its weight_map (None removes one)."""
    write_tiny_directory(tmp_path, **changes)
    (tmp_path / "model.safetensors").unlink()
    tensors = tiny_tensors()
    shards = {
        "model-00001-of-00002.safetensors": list(tensors)[:2],
        "model-00002-of-00002.safetensors": list(tensors)[2:],
    }
    for shard, names in shards.items():
        save_file({name: tensors[name] for name in names}, tmp_path / shard)
    weight_map = {name: shard for shard, names in shards.items() for name in names} | (owners or {})
    index = {
        "metadata": {},
        "weight_map": {key: value for key, value in weight_map.items() if value is not None},
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))


def shard_refusal(tmp_path, **changes) -> str:
    write_shards(tmp_path, **changes)
    with pytest.raises(ModelError) as caught:
        SafetensorsCheckpoint(tmp_path)
    return str(caught.value)


def test_shards_are_read_as_one_model(tmp_path):
    write_shards(tmp_path)
    checkpoint = SafetensorsCheckpoint(tmp_path)
    assert set(checkpoint.tensors) == set(tiny_tensors())
    for name, values in tiny_tensors().items():
        assert np.array_equal(checkpoint.read(name), values)


def test_a_missing_shard_is_named(tmp_path):
    write_shards(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match=r"1 of 2 shards are missing: model-00002-of-00002\.safetensors"):
        SafetensorsCheckpoint(tmp_path)


@pytest.mark.parametrize(
    ("owners", "words"),
    [
        (
            {"model.extra": "model-00001-of-00002.safetensors"},
            "holds the tensor 'model.extra', but it does not",
        ),
        ({"model.norm.weight": "model-00001-of-00002.safetensors"}, "'model.norm.weight', but it does not"),
        ({"model.embed_tokens.weight": None}, "does not say that model-00001-of-00002.safetensors holds"),
        ({"model.norm.weight": "../other.safetensors"}, "must be a .safetensors file beside the index"),
        ({"model.norm.weight": "/etc/passwd"}, "must be a .safetensors file beside the index"),
        ({"model.norm.weight": 5}, "must be a .safetensors file beside the index, found 5"),
    ],
)
def test_an_index_that_contradicts_the_shards_is_refused(tmp_path, owners, words):
    assert words in shard_refusal(tmp_path, owners=owners)


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', "{", "\x00"])
def test_an_index_that_lists_nothing_is_refused(tmp_path, content):
    write_shards(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match=r"index\.json"):
        SafetensorsCheckpoint(tmp_path)


def test_a_single_file_may_have_any_name_but_several_need_an_index(tmp_path):
    write_tiny_directory(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    assert set(SafetensorsCheckpoint(tmp_path).tensors) == set(tiny_tensors())
    write_safetensors(tmp_path / "more.safetensors", {"x": ("F32", np.ones(1, np.float32))})
    with pytest.raises(ModelError, match=r"found more\.safetensors, weights\.safetensors"):
        SafetensorsCheckpoint(tmp_path)


def test_other_weights_beside_model_safetensors_are_left_alone(tmp_path):
    write_tiny_directory(tmp_path)
    write_safetensors(tmp_path / "consolidated.safetensors", {"x": ("F32", np.ones(1, np.float32))})
    assert set(SafetensorsCheckpoint(tmp_path).tensors) == set(tiny_tensors())


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_directory_without_a_required_file_is_refused(tmp_path, name):
    write_tiny_directory(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        SafetensorsCheckpoint(tmp_path)


JSON_FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]


@pytest.mark.parametrize("name", [*JSON_FILES, "generation_config.json"])
@pytest.mark.parametrize("content", ["", "{", "[1]", "nul", '{"a": ' + "[" * 100_000])
def test_files_that_are_no_json_object_are_refused_by_name(tmp_path, name, content):
    assert name in refusal(tmp_path, files={name: content})


@pytest.mark.parametrize("name", [*JSON_FILES, "generation_config.json", "chat_template.jinja"])
def test_files_that_are_not_utf_8_are_refused_by_name(tmp_path, name):
    write_tiny_directory(tmp_path)
    (tmp_path / name).write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        SafetensorsCheckpoint(tmp_path)


def test_the_tokenizer_is_the_file_s_text(tmp_path):
    spec = open_with(tmp_path).tokenizer
    assert spec.tokenizer_json is not None and json.loads(spec.tokenizer_json) == tokenizer_json()
    assert spec.vocabulary is None
    assert (spec.bos_token_id, spec.eos_token_ids) == (1, (2,))
    assert (spec.add_bos, spec.add_eos) == (None, None)
    assert (spec.special_tokens, spec.chat_templates) == ((), ())
    assert (spec.response_template, spec.has_response_schema) == (None, False)


def test_what_the_checkpoint_says_of_its_answers_is_told_as_it_is(tmp_path):
    said = {"start_anchor": "<a>", "fields": {"content": {}}}
    config = {"response_template": said, "response_schema": {"type": "object"}}
    spec = open_with(tmp_path, files={"tokenizer_config.json": config}).tokenizer
    assert spec.response_template is not None and json.loads(spec.response_template) == said
    assert spec.has_response_schema


def test_special_tokens_come_from_the_tokenizer_s_config_and_then_the_map(tmp_path):
    files = {
        "tokenizer_config.json": {
            "bos_token": None,
            "eos_token": {"content": "<|im_end|>", "special": True},
            "unk_token": "<|endoftext|>",
        },
        "special_tokens_map.json": {
            "bos_token": "x",
            "eos_token": "y",
            "pad_token": {"content": "<|im_end|>"},
        },
    }
    spec = open_with(tmp_path, files=files).tokenizer
    assert dict(spec.special_tokens) == {
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }


def test_every_file_has_a_say_in_what_ends_a_text(tmp_path):
    files = {
        "generation_config.json": {"eos_token_id": [7, 5]},
        "tokenizer_config.json": {"eos_token": "<|endoftext|>", "bos_token": "h"},
    }
    checkpoint = open_with(tmp_path, config={"eos_token_id": [2, 7]}, files=files)
    assert checkpoint.config.eos_token_ids == (7, 5, 2, 0)
    assert checkpoint.tokenizer.eos_token_ids == (7, 5, 2, 0)
    assert checkpoint.config.bos_token_id == 1
    vocabulary = tokenizer_json()["model"]["vocab"]
    assert checkpoint.tokenizer.bos_token_id == vocabulary["h"]


def test_tokens_of_a_unigram_vocabulary_are_found_by_their_place(tmp_path):
    table = tokenizer_json()
    table["model"] = {"type": "Unigram", "vocab": [["<unk>", 0.0], ["</s>", -1.0]]}
    files = {"tokenizer.json": table, "tokenizer_config.json": {"eos_token": "</s>"}}
    assert open_with(tmp_path, files=files).config.eos_token_ids == (2, 1)


def test_chat_templates_in_files_go_before_configured_ones(tmp_path):
    configured = [{"name": "default", "template": "old"}, {"name": "rag", "template": "R"}]
    files = {
        "tokenizer_config.json": {"chat_template": configured},
        "chat_template.jinja": "{{ nëw }}",
        "additional_chat_templates/tool_use.jinja": "T",
    }
    spec = open_with(tmp_path, files=files).tokenizer
    assert dict(spec.chat_templates) == {"default": "{{ nëw }}", "rag": "R", "tool_use": "T"}


def test_one_configured_chat_template_is_the_default(tmp_path):
    spec = open_with(tmp_path, files={"tokenizer_config.json": {"chat_template": "C"}}).tokenizer
    assert spec.chat_templates == (("default", "C"),)


def test_recommended_sampling_values_go_by_their_parameter_s_name(tmp_path):
    values = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": None, "max_new_tokens": 99}
    defaults = open_with(tmp_path, files={"generation_config.json": values}).generation_defaults
    assert defaults.values == {"temperature": 0.7, "top_k": 20, "max_tokens": 99}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"tokenizer.json": {"model": []}}, "model must be an object"),
        ({"tokenizer_config.json": {"bos_token": 5}}, "bos_token must be a token's text"),
        ({"tokenizer_config.json": {"chat_template": 5}}, "chat_template must be a string, or a list"),
        (
            {"tokenizer_config.json": {"chat_template": [{"name": "x"}]}},
            "chat_template must be a string, or a list",
        ),
        ({"tokenizer_config.json": {"chat_template": ["x"]}}, "chat_template must be a string, or a list"),
        (
            {"generation_config.json": {"temperature": "hot"}},
            "temperature must be a finite number, found 'hot'",
        ),
        ({"generation_config.json": {"top_k": 1.5}}, "top_k must be a whole number"),
        (
            {"generation_config.json": {"eos_token_id": "2"}},
            "eos_token_id must be a token id or a list of them",
        ),
        (
            {"generation_config.json": {"eos_token_id": [2, True]}},
            "eos_token_id must be a token id or a list",
        ),
        (
            {"generation_config.json": {"eos_token_id": 999_999}},
            "special token id 999999 is outside the vocabulary",
        ),
    ],
)
def test_values_of_a_wrong_kind_are_refused(tmp_path, files, words):
    assert words in refusal(tmp_path, files=files)


@pytest.mark.parametrize("added", [5, "x", {"a": 1}])
@pytest.mark.parametrize("place", ["added_tokens", "vocab"])
def test_a_tokenizer_whose_lists_are_none_is_refused(tmp_path, added, place):
    table = tokenizer_json()
    (table if place == "added_tokens" else table["model"])[place] = added
    files = {"tokenizer.json": table, "tokenizer_config.json": {"eos_token": "a"}}
    if place == "vocab" and isinstance(added, dict):
        assert open_with(tmp_path, files=files).config.eos_token_ids == (2, 1)
    else:
        assert f"{place} must be a list" in refusal(tmp_path, files=files)


@pytest.mark.parametrize("token_id", [-1, "0", None, True, 1.5])
def test_a_token_s_id_is_a_number(tmp_path, token_id):
    table = tokenizer_json()
    table["added_tokens"] = [{"id": token_id, "content": "<end>"}]
    files = {"tokenizer.json": table, "tokenizer_config.json": {"eos_token": "<end>"}}
    assert "the id of token '<end>' must be 0 or above" in refusal(tmp_path, files=files)


def test_a_special_token_that_the_tokenizer_does_not_have_has_no_id(tmp_path):
    checkpoint = open_with(tmp_path, files={"tokenizer_config.json": {"eos_token": "<nowhere>"}})
    assert checkpoint.config.eos_token_ids == (TINY_CONFIG["eos_token_id"],)
