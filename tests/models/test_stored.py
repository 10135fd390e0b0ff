"""Every tensor of a checkpoint is used, tied or derived, or the checkpoint is refused before weights are read."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest

from noria.config.errors import ModelError
from noria.kernels.ops import BackendOptions
from noria.kernels.select import load_backend
from noria.models import stored
from noria.models.build import build_model, cache_shape
from noria.models.stored import StoredModel
from support_batches import Driver
from support_models import MemoryFile, load, random_file, small_config

FORMATS = ("safetensors", "gguf")
HEADS = {"safetensors": "lm_head.weight", "gguf": "output.weight"}
EMBEDDINGS = {"safetensors": "model.embed_tokens.weight", "gguf": "token_embd.weight"}
EVERYTHING = {
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": False,
    "architecture": "qwen3",
}


def logits(file: MemoryFile) -> np.ndarray:
    driver = Driver(load(file, 16, 4), 16, 4)
    return driver.run_alone(driver.add([1, 2, 3, 4, 5, 6]))


@pytest.mark.parametrize("file_format", FORMATS)
def test_any_missing_tensor_is_named_and_nothing_is_read(file_format: str) -> None:
    whole = random_file(small_config(**EVERYTHING), file_format)
    for name in whole.arrays:
        arrays = {other: array for other, array in whole.arrays.items() if other != name}
        file = MemoryFile(file_format, whole.config, arrays)
        with pytest.raises(ModelError, match=f"memory: tensor {name} is missing"):
            StoredModel(file)
        assert file.reads == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_any_tensor_of_another_shape_is_named_with_both_shapes_and_nothing_is_read(file_format: str) -> None:
    whole = random_file(small_config(**EVERYTHING), file_format)
    for name, array in whole.arrays.items():
        for wrong in (np.zeros((*array.shape, 1)), np.zeros((array.shape[0] + 1, *array.shape[1:]))):
            file = MemoryFile(file_format, whole.config, {**whole.arrays, name: wrong})
            found, expected = ("x".join(map(str, shape)) for shape in (wrong.shape, array.shape))
            message = f"tensor {name} has the shape {found}; its configuration calls for {expected}$"
            with pytest.raises(ModelError, match=message):
                StoredModel(file)
            assert file.reads == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_tensor_with_numbers_that_are_not_finite_is_named(name: str, bad: float) -> None:
    file = random_file(small_config())
    file.arrays[name].reshape(-1)[[3, 40]] = bad
    size = file.arrays[name].size
    with pytest.raises(ModelError, match=f"memory: tensor {name}: 2 of its {size} numbers are not finite"):
        load(file, 16, 4)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.mlp.up_proj.weight", "x"]
)
def test_a_tensor_of_no_use_is_named(name: str) -> None:
    file = random_file(small_config())
    file.arrays[name] = np.zeros(3, np.float32)
    with pytest.raises(ModelError, match=f"tensor {name} is not part of a llama model as configured"):
        StoredModel(file)
    assert file.reads == []


def test_many_tensors_of_no_use_are_counted() -> None:
    file = random_file(small_config())
    file.arrays.update({f"lora.{i}": np.zeros(3, np.float32) for i in range(7)})
    with pytest.raises(
        ModelError, match=r"tensors lora.0, lora.1, lora.2, lora.3, lora.4 and 2 more are not part"
    ):
        StoredModel(file)


@pytest.mark.parametrize(
    ("file_format", "name"),
    [
        ("gguf", "rope_freqs.weight"),
        ("safetensors", "model.rotary_emb.inv_freq"),
        ("safetensors", "model.layers.1.self_attn.rotary_emb.inv_freq"),
    ],
)
def test_a_table_that_the_configuration_determines_is_left_aside(file_format: str, name: str) -> None:
    file = random_file(small_config(), file_format)
    expected = logits(file)
    file.arrays[name] = np.zeros(4, np.float32)
    np.testing.assert_array_equal(logits(file), expected)
    assert name not in file.reads


@pytest.mark.parametrize("file_format", FORMATS)
def test_without_an_output_matrix_the_embedding_serves(file_format: str) -> None:
    tied = random_file(small_config(), file_format)
    stated = random_file(small_config(tie_word_embeddings=False), file_format)
    stated.arrays.update(tied.arrays, **{HEADS[file_format]: tied.arrays[EMBEDDINGS[file_format]]})
    np.testing.assert_array_equal(logits(tied), logits(stated))


def test_an_output_matrix_in_a_gguf_file_is_used_even_where_the_configuration_says_tied() -> None:
    untied = random_file(small_config(tie_word_embeddings=False), "gguf")
    said_tied = MemoryFile("gguf", replace(untied.config, tie_word_embeddings=True), untied.arrays)
    np.testing.assert_array_equal(logits(said_tied), logits(untied))
    assert not StoredModel(said_tied).config.tie_word_embeddings


def test_a_stored_copy_of_a_tied_embedding_is_no_contradiction() -> None:
    file = random_file(small_config())
    expected = logits(file)
    file.arrays["lm_head.weight"] = file.arrays["model.embed_tokens.weight"].copy()
    np.testing.assert_array_equal(logits(file), expected)
    assert StoredModel(file).config.tie_word_embeddings


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_stored_copy_of_a_tied_embedding_is_never_there_in_whole_beside_it(
    zero: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, most, spans = random_file(small_config()), 1000, []
    file.arrays["model.embed_tokens.weight"][-1, -1] = 0.0
    file.arrays["lm_head.weight"] = file.arrays["model.embed_tokens.weight"].copy()
    file.arrays["lm_head.weight"][-1, -1] = zero  # the same number, if not the same bytes
    read_raw = file.read_raw

    def noted(name: str, start: int = 0, end: int | None = None) -> np.ndarray:
        piece = read_raw(name, start, end)
        spans.append((name, start, len(piece)))
        return piece

    monkeypatch.setattr(stored, "_PIECE_BYTES", most)
    monkeypatch.setattr(file, "read_raw", noted)
    assert StoredModel(file).config.tie_word_embeddings
    size = file.arrays["lm_head.weight"].nbytes
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        expected = [(name, start, min(most, size - start)) for start in range(0, size, most)]
        assert [span for span in spans if span[0] == name] == expected


def test_another_output_matrix_beside_a_tied_embedding_is_refused_naming_both() -> None:
    file = random_file(small_config())
    head = file.arrays["model.embed_tokens.weight"].copy()
    head[-1, -1] += 1
    file.arrays["lm_head.weight"] = head
    message = "says tie_word_embeddings, but the tensors lm_head.weight and model.embed_tokens.weight differ"
    with pytest.raises(ModelError, match=message):
        StoredModel(file)


def test_an_untied_configuration_without_an_output_matrix_says_what_it_contradicts() -> None:
    file = random_file(small_config())
    file.config = replace(file.config, tie_word_embeddings=False)
    with pytest.raises(
        ModelError, match=r"tensor lm_head.weight is missing; its configuration says .* not tied"
    ):
        StoredModel(file)


def test_a_format_without_names_is_refused_with_those_supported() -> None:
    file = random_file(small_config())
    file.format = "pickle"
    with pytest.raises(
        ModelError, match="'llama' cannot be read from pickle; it can from: safetensors, gguf"
    ):
        StoredModel(file)


def test_an_unknown_architecture_is_refused_with_those_supported() -> None:
    file = random_file(small_config())
    file.config = replace(file.config, architecture="mamba")
    with pytest.raises(
        ModelError, match=r"'mamba' is not supported; supported: bert, .*llama, mistral, qwen2, qwen3"
    ):
        StoredModel(file)


def test_an_unknown_gate_is_refused_with_those_supported() -> None:
    file = random_file(small_config(hidden_act="relu6"))
    with pytest.raises(ModelError, match="'relu6' is not supported; supported: silu, gelu_pytorch_tanh"):
        load(file, 16, 4)


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_tensor_is_read_once_and_progress_ends_at_the_total(file_format: str) -> None:
    file = random_file(small_config(**EVERYTHING), file_format)
    seen: list[tuple[int, int]] = []
    backend = load_backend("torch")(BackendOptions("float32", "cpu", 1, cache_shape(file.config, 16, 4)))
    build_model(StoredModel(file, lambda done, total: seen.append((done, total))), backend, 64)
    assert sorted(file.reads) == sorted(file.arrays)
    total = sum(array.nbytes for array in file.arrays.values())
    assert [done for done, _ in seen] == np.cumsum([file.arrays[name].nbytes for name in file.reads]).tolist()
    assert {total for _, total in seen} == {total}
    assert seen[-1] == (total, total)


def test_no_matrix_outlives_its_packing() -> None:
    """Peak memory is the packed weights and one tensor."""
    alive: list[weakref.ref[np.ndarray]] = []

    class Watched(MemoryFile):
        def read(self, name: str) -> np.ndarray:
            assert not [ref for ref in alive if ref() is not None], (
                f"a matrix is still held as {name} is read"
            )
            array = super().read(name)
            if array.ndim == 2:
                alive.append(weakref.ref(array))
            return array

    whole = random_file(small_config(**EVERYTHING))
    load(Watched("safetensors", whole.config, whole.arrays), 16, 4, dtype="bfloat16")
    assert len(alive) == 2 + 7 * whole.config.num_layers


@pytest.mark.parametrize(("row_bytes", "rows"), [(64, 131072), (1152, 7280), (12_000, 1024), (100_000, 1024)])
def test_a_piece_of_a_matrix_has_whole_tiles_and_enough_rows_for_many_threads(
    row_bytes: int, rows: int
) -> None:
    assert rows % 16 == 0
    assert stored.rows_of_a_piece(row_bytes) == rows
