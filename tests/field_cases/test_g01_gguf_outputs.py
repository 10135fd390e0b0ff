"""G01: a tied GGUF file failed for lack of an output matrix; or a real one was dropped, giving fluent nonsense.

The kind: loaders account for every tensor: used, tied, or an error. Tensors missing, of no use, of another shape or in
contradiction are tried one by one in tests/models/test_stored.py. Here: SmolLM2, cut to its first layers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

from noria import LLM, SamplingParams
from noria.config.errors import ModelError
from noria.core.plan import TokenLogprobs
from noria.loaders.resolve import open_checkpoint
from noria.models.names import name_map
from noria.models.registry import architecture
from noria.models.stored import StoredModel
from support_embedded import embedded_model
from support_k_quants import FALLBACKS, SIZE, quantise_k
from support_models import write_tokenizer

NUM_LAYERS = 4
HEAD, EMBEDDING = "output.weight", "token_embd.weight"
SHIFT = 7  # the other output matrix: each row this many further on
TEXT = (
    "The water wheel turns slowly, and its buckets fill and empty while the river runs beside the old mill."
)

Weights = dict[str, np.ndarray]  # float32, by the file's names, rows in the file's order


@pytest.fixture(scope="module")
def weights() -> Weights:
    checkpoint = open_checkpoint(str(embedded_model()))
    names = [name for name in checkpoint.tensors if _layer_of(name) < NUM_LAYERS]
    return {name: checkpoint.read(name) for name in names}


def _layer_of(name: str) -> int:
    return int(name.split(".")[1]) if name.startswith("blk.") else -1


def encoded(kind: str, values: np.ndarray) -> tuple[np.ndarray, GGMLQuantizationType]:
    """As converters store it: vectors in float32, and rows that no block divides in another type."""
    if values.ndim == 1:
        return values, GGMLQuantizationType.F32
    if kind not in FALLBACKS:
        return quantize(values, GGMLQuantizationType[kind]), GGMLQuantizationType[kind]
    if values.shape[1] % SIZE:
        return encoded(FALLBACKS[kind], values)
    return quantise_k(kind, values), GGMLQuantizationType[kind]


@cache
def metadata() -> list[tuple[str, Any, list[GGUFValueType]]]:
    """Of the embedded model: names, values and their types."""
    fields = GGUFReader(embedded_model()).fields.values()
    return [
        (field.name, field.contents(), field.types)
        for field in fields
        if not field.name.startswith("GGUF.") and field.name != "general.architecture"
    ]


def write_gguf(path: Path, kind: str, weights: Mapping[str, np.ndarray]) -> Path:
    """The embedded model's metadata, with these weights."""
    writer = GGUFWriter(path, "llama")
    for name, value, kinds in metadata():
        inner = kinds[1] if kinds[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(name, NUM_LAYERS if name == "llama.block_count" else value, kinds[0], inner)
    for name, values in weights.items():
        raw, number = encoded(kind, values)
        writer.add_tensor(name, raw, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(directory: Path, gguf: Path) -> Path:
    """The same model in the other format: matrices in 16 bits, vectors in 32."""
    directory.mkdir()
    stored = StoredModel(open_checkpoint(str(gguf)))
    config = stored.config
    names = name_map("safetensors", config)
    tensors = {}
    for name in architecture(config).shapes(config):
        values = stored.floats(name)
        tensors[names.file_name(name)] = np.ascontiguousarray(
            values.astype(np.float16) if values.ndim == 2 else values
        )
    save_file(tensors, directory / "model.safetensors")
    settings: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "max_position_embeddings": config.max_position,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "hidden_act": config.hidden_act,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": list(config.eos_token_ids),
    }
    (directory / "config.json").write_text(json.dumps(settings))
    write_tokenizer(directory)
    return directory


Said = tuple[list[int], list[TokenLogprobs], list[TokenLogprobs]]


def said(model: Path, max_tokens: int = 12, **settings: Any) -> Said:
    """Greedy ids, what is told of each, and what is told of the prompt's tokens."""
    params = SamplingParams(
        temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=5, prompt_logprobs=0
    )
    with LLM(model, show_progress=False, num_threads=1, max_model_len=128, **settings) as llm:
        [result] = llm.generate(TEXT, params, show_progress=False)
    return result.outputs[0].token_ids, result.outputs[0].logprobs, result.prompt_logprobs[1:]


def distance(one: Said, other: Said) -> float:
    """How far log-probabilities of the prompt's tokens lie apart, on average."""
    return float(np.mean([abs(a.logprob - b.logprob) for a, b in zip(one[2], other[2], strict=True)]))


@pytest.fixture(scope="module")
def exact(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """The file in 16 bits without an output matrix, and what it says."""
    path = write_gguf(tmp_path_factory.mktemp("f16") / "model.gguf", "F16", weights)
    return path, said(path)


def test_in_16_bits_every_bit_is_that_of_the_same_model_in_safetensors(
    exact: tuple[Path, Said], tmp_path: Path
) -> None:
    path, expected = exact
    assert said(write_safetensors(tmp_path / "model", path), tokenizer=str(path)) == expected


def with_output(weights: Weights) -> Weights:
    return {**weights, HEAD: np.roll(weights[EMBEDDING], SHIFT, axis=0)}


def shifted(entry: TokenLogprobs, size: int) -> TokenLogprobs:
    top = tuple(((token_id + SHIFT) % size, logprob) for token_id, logprob in entry.top)
    return replace(entry, token_id=(entry.token_id + SHIFT) % size, top=top)


def as_stored(kind: str, values: np.ndarray) -> np.ndarray:
    """What is left of the values in that type."""
    raw, number = encoded(kind, values)
    return values if values.ndim == 1 else dequantize(raw, number)


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_K", "Q6_K"])
def test_without_an_output_matrix_the_embedding_serves_and_another_one_is_used(
    kind: str, weights: Weights, tmp_path: Path
) -> None:
    plain = {name: as_stored(kind, values) for name, values in weights.items()}
    expected = said(write_gguf(tmp_path / "plain.gguf", "F16", plain), max_tokens=1)
    file = write_gguf(tmp_path / "tied.gguf", kind, weights)
    assert distance(said(file, max_tokens=1, backend="torch"), expected) <= 0.01  # rounding to 16 bits
    tied = said(file, max_tokens=1)
    assert distance(tied, expected) <= 0.15  # its products take activations in 8 bits
    other = said(write_gguf(tmp_path / "other.gguf", kind, with_output(weights)), max_tokens=1)
    # The same rows in other places: the first token it says is the other one's, and nothing else differs.
    assert other[1][0] == shifted(tied[1][0], len(weights[EMBEDDING]))
    assert distance(other, expected) > 3


def test_a_copy_of_the_embedding_as_the_output_changes_nothing(
    exact: tuple[Path, Said], weights: Weights, tmp_path: Path
) -> None:
    copied = write_gguf(tmp_path / "copied.gguf", "F16", {**weights, HEAD: weights[EMBEDDING]})
    assert said(copied) == exact[1]


def test_a_tensor_too_many_and_one_too_few_are_named(weights: Weights, tmp_path: Path) -> None:
    name = "blk.2.ffn_up.weight"
    fewer = {other: values for other, values in weights.items() if other != name}
    with pytest.raises(ModelError, match=f"tensor {name} is missing"):
        said(write_gguf(tmp_path / "fewer.gguf", "Q8_0", fewer))
    more = {**weights, "output_extra.weight": weights["output_norm.weight"]}
    with pytest.raises(ModelError, match=r"tensor output_extra.weight is not part of a llama model"):
        said(write_gguf(tmp_path / "more.gguf", "Q8_0", more))


@pytest.mark.parametrize(("kind", "at_most"), [("Q4_K", 0.08), ("Q6_K", 0.025)])
def test_the_files_tried_here_hold_what_they_say(kind: str, at_most: float, weights: Weights) -> None:
    values = weights["blk.0.ffn_down.weight"]
    raw, number = encoded(kind, values)
    assert number.name == kind
    error = np.sqrt(np.mean((dequantize(raw, number) - values) ** 2) / np.mean(values**2))
    assert error < at_most
