"""In which form a model's weights are kept, what that does to its answers, and what it takes in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noria.config.errors import ModelError
from noria.kernels.native import _native
from noria.kernels.native.choices import format_choices
from noria.kernels.native.formats import Formats
from noria.kernels.native.packing import NativePacker
from noria.kernels.native.sizes import matrix_sizes
from noria.models.build import BuiltModel
from noria.models.footprint import PACKED_ATTENTION_BYTES, packed_footprint
from noria.models.registry import architecture
from noria.models.rope import rope_table
from noria.models.stored import StoredModel
from support_batches import Driver
from support_models import MemoryFile, load, random_file, small_config
from support_quantised import QuantisedFile, quantised_file

WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_heads": 8, "head_dim": 32}
BIASES: dict[str, Any] = {"qkv_bias": True, "output_bias": True, "mlp_bias": True}
UNTIED: dict[str, Any] = {"tie_word_embeddings": False, "vocab_size": 200}
# Only `o` and `down` have rows of whole groups.
ODD: dict[str, Any] = {"hidden_size": 48, "intermediate_size": 128, "num_heads": 8, "num_kv_heads": 8}
NARROW = ("embed", "q_proj", "k_proj", "v_proj", "gate", "up_proj")


def built(file: MemoryFile, **options: Any) -> BuiltModel:
    return load(file, 16, 8, backend_name="native", num_threads=2, max_model_len=100, **options)


def logits_of(file: MemoryFile, **options: Any) -> np.ndarray:
    driver = Driver(built(file, **options), 16, 8)
    return driver.run_alone(driver.add(np.random.default_rng(0).integers(0, 97, 70).tolist()))


def packed(file: MemoryFile, formats: Formats) -> list[_native.LinearWeight]:
    """All weights of a model, a shared one once."""
    packer, config = NativePacker(formats, _native.Pool(2)), file.config
    rope = packer.pack_table(rope_table(config, 16))
    model = architecture(config)(config, StoredModel(file), packer, rope)
    linears = [model.ends.embedding, model.ends.head]
    for attention, mlp in model.layers:
        linears += [attention.projection.weight, attention.output, mlp.gate_up, mlp.down]
    return list({id(weight): weight for linear in linears for weight in linear.weights}.values())


def rounded(file: MemoryFile, quantization: str) -> MemoryFile:
    """The numbers that the matrices are rounded to, in float32."""
    arrays = dict(file.arrays)
    for name, array in arrays.items():
        if array.ndim == 2:
            is_table = len(array) == file.config.vocab_size
            weight = _native.LinearWeight.of_rounded("w8" if is_table else quantization, *array.shape)
            weight.put_stored(_native.Pool(1), 0, "F32", array.view(np.uint8))
            arrays[name] = weight.read(0, len(array))
    return MemoryFile(file.format, file.config, arrays)


@pytest.mark.parametrize("file_format", ["safetensors", "gguf"])
@pytest.mark.parametrize("shape", [{}, UNTIED, BIASES, {"architecture": "qwen3"}])
@pytest.mark.parametrize("quantization", ["w8", "w4"])
def test_rounded_models_differ_from_their_numbers_by_rounded_activations_only(
    quantization: str, shape: dict[str, Any], file_format: str
) -> None:
    file = random_file(small_config(**WIDE, **shape), file_format)
    expected = logits_of(rounded(file, quantization))
    error = logits_of(file, quantization=quantization) - expected
    assert 0 < np.sqrt((error**2).mean()) < 0.03 * expected.std()


@pytest.mark.parametrize("kind", ["BF16", "F16"])
def test_weights_of_16_bits_answer_as_the_same_numbers_in_float32_to_the_bit(kind: str) -> None:
    file = quantised_file(small_config(**WIDE, **BIASES), kind)
    widened = MemoryFile(file.format, file.config, file.arrays)
    np.testing.assert_array_equal(logits_of(file), logits_of(widened))


@pytest.mark.parametrize("kind", ["BF16", "F16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_of_16_bits_are_kept_as_stored_whatever_the_dtype(kind: str, dtype: str) -> None:
    file = quantised_file(small_config(**WIDE), kind)
    table = packed(file, Formats(dtype))[0]
    np.testing.assert_array_equal(table.read(0, 97), file.arrays["model.embed_tokens.weight"])
    assert table.num_bytes == 128 * 256 * 2


def test_weights_of_float32_are_rounded_to_float16_where_that_is_asked_for() -> None:
    file = random_file(small_config(**WIDE))
    table = packed(file, Formats("float16"))[0].read(0, 97)
    np.testing.assert_array_equal(table, file.arrays["model.embed_tokens.weight"].astype(np.float16))
    expected = logits_of(file)
    error = np.abs(logits_of(file, dtype="float16") - expected).max()
    assert 0 < error < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("quantization", ["none", "w8", "w4"])
@pytest.mark.parametrize("kind", ["F32", "BF16", "F16", "Q8_0"])
@pytest.mark.parametrize("shape", [WIDE, {**WIDE, **UNTIED}, ODD])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_model_takes_the_bytes_foretold(
    dtype: str, shape: dict[str, Any], kind: str, quantization: str
) -> None:
    config, formats = small_config(**shape), Formats(dtype, quantization)
    is_odd = kind == "Q8_0" and shape is ODD
    file = quantised_file(config, kind, kinds=dict.fromkeys(NARROW, "F16") if is_odd else None)
    foretold = packed_footprint(StoredModel(file), dtype, quantization, matrix_sizes(formats))
    assert (foretold.dtype, foretold.quantization) == (dtype, quantization)
    vectors = sum(array.size for array in file.arrays.values() if array.ndim == 1)
    assert sum(weight.num_bytes for weight in packed(file, formats)) + 4 * vectors == foretold.weights_bytes


def test_the_vocabulary_keeps_8_bits_where_the_rest_has_4() -> None:
    file = random_file(small_config(**WIDE, **UNTIED))
    embedding, head, *others = packed(file, Formats("float32", "w4"))
    assert (embedding.num_bytes, head.num_bytes) == (256 * 256 * 34 // 32, 256 * 256 * 34 // 32)
    assert all(weight.num_bytes == weight.num_panels * 64 * weight.k * 20 // 32 for weight in others)


def test_the_largest_table_is_never_widened_so_no_memory_is_set_aside_for_it() -> None:
    file = random_file(small_config(vocab_size=20_000, hidden_size=64))
    takes = packed_footprint(StoredModel(file), "float32", "none", matrix_sizes(Formats("float32")))
    assert takes.workspace_bytes == PACKED_ATTENTION_BYTES + 80 * 64 * 4


@pytest.mark.parametrize("options", [{"quantization": "w8"}, {"quantization": "w4"}, {"dtype": "float16"}])
def test_what_a_format_cannot_hold_is_refused_with_the_tensors_name(options: dict[str, str]) -> None:
    file = random_file(small_config(**WIDE))
    name = "model.layers.1.mlp.up_proj.weight"
    file.arrays[name][3, 5] = np.nan
    message = f"memory: tensor {name}: number 5 of row 3 is nan; only finite numbers up to 65504"
    with pytest.raises(ModelError, match=message):
        built(file, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_floats_that_are_not_finite_are_refused_with_the_tensors_name(
    dtype: str, kind: str, bad: float
) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    whole = random_file(small_config(**WIDE))
    whole.arrays[name][7, 250] = bad
    file = QuantisedFile(whole, {} if kind == "F32" else {name: kind})
    with pytest.raises(ModelError, match=f"memory: tensor {name}: number 250 of row 7 is {bad}; only finite"):
        built(file, dtype=dtype)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["scale", "minimum"])
def test_quantised_blocks_that_are_not_finite_are_refused_with_the_tensors_name(
    what: str, bad: float
) -> None:
    name = "model.layers.1.self_attn.v_proj.weight"
    whole = random_file(small_config(**WIDE))
    file = QuantisedFile(whole, {other: "Q4_1" for other in whole.arrays if whole.arrays[other].ndim == 2})
    row_bytes = 256 // 32 * 20
    at = 3 * row_bytes + 20 + (2 if what == "minimum" else 0)  # the second block of row 3
    file.read_raw(name)[at : at + 2] = np.array([bad], np.float16).view(np.uint8)
    with pytest.raises(ModelError, match=f"memory: tensor {name}: the {what} of group 1 in row 3 is {bad}"):
        built(file)


def told(file: MemoryFile, formats: Formats) -> list[tuple[str, str, str, bool]]:
    choices = format_choices(formats, StoredModel(file).matrices())
    return [(one.name, one.value, one.reason, one.is_notice) for one in choices]


def test_what_is_rounded_and_what_is_not_is_told() -> None:
    whole = "asked for; 15 of 15 matrices are rounded while they are loaded"
    assert told(random_file(small_config(**WIDE)), Formats("float32", "w8")) == [
        ("quantization", "w8", whole, False)
    ]
    mixed = quantised_file(small_config(**WIDE), "Q4_0", kinds={"down": "F16", "embed": "BF16"})
    words = (
        "asked for; 3 of 15 matrices are rounded while they are loaded; 12 are quantised in the file (Q4_0) "
    )
    assert told(mixed, Formats("float32", "w4")) == [("quantization", "w4", words + "and stay so", True)]
    narrow = (
        "asked for; 4 of 15 matrices are rounded while they are loaded; 11 stay in 16 bits: their rows of 48 "
    )
    assert told(random_file(small_config(**ODD)), Formats("float32", "w4")) == [
        ("quantization", "w4", narrow + "numbers are no multiple of 32", True)
    ]
    assert told(mixed, Formats("bfloat16")) == []


@pytest.mark.parametrize("quantization", ["w8", "w4"])
def test_what_the_file_has_quantised_stays_so_to_the_bit(quantization: str) -> None:
    file = quantised_file(small_config(**WIDE), "Q4_1")
    np.testing.assert_array_equal(logits_of(file, quantization=quantization), logits_of(file))


def test_a_gate_and_an_up_of_different_kinds_become_one_weight() -> None:
    file = quantised_file(small_config(**WIDE), "Q8_0", kinds={"up_proj": "F16"})
    expected = logits_of(file)
    error = logits_of(file, quantization="w4") - expected
    assert np.sqrt((error**2).mean()) < 0.03 * expected.std()
