"""Encoders and classifiers as transformers writes them, loaded and run, against transformers in float32."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from noria.config.errors import ModelError
from noria.config.pooling import Head
from noria.loaders.resolve import open_checkpoint
from noria.models.build import BuiltModel
from noria.models.footprint import footprint
from noria.models.stored import StoredModel
from support_backends import BACKENDS
from support_encoders import one_step, small_encoder, write_encoder
from support_models import load, random_model

TOLERANCE = 3e-5
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "bert with relu": ("bert", {"hidden_act": "relu"}),
    "bert with gelu_new": ("bert", {"hidden_act": "gelu_new"}),
    "bert with silu": ("bert", {"hidden_act": "silu", "num_hidden_layers": 3}),
    "bert of one token type": ("bert", {"type_vocab_size": 1}),
    "roberta": ("roberta", {}),
    "xlm-roberta": ("xlm-roberta", {}),
}
LENGTHS = (1, 2, 37, 130)


@pytest.fixture(params=BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def texts_of(vocab_size: int, low: int = 2) -> list[list[int]]:
    """Without the padding tokens, from which transformers' RoBERTa counts places."""
    rng = np.random.default_rng(3)
    return [rng.integers(low, vocab_size, length).tolist() for length in LENGTHS]


def loaded(directory: Path, backend_name: str, num_layers: int | None = None) -> BuiltModel:
    """num_layers: only the first so many."""
    file = open_checkpoint(str(directory))
    if num_layers is not None:
        file.config = replace(file.config, num_layers=num_layers)
        file.tensors = {n: t for n, t in file.tensors.items() if not is_beyond(n, num_layers)}
    return load(file, 16, 40, backend_name=backend_name, num_threads=2)


def is_beyond(name: str, num_layers: int) -> bool:
    _, found, rest = name.partition("encoder.layer.")
    return bool(found) and int(rest.split(".")[0]) >= num_layers


@pytest.mark.parametrize("name", CASES)
def test_hidden_states_equal_transformers_layer_by_layer(
    name: str, backend_name: str, tmp_path: Path
) -> None:
    kind, overrides = CASES[name]
    reference = write_encoder(tmp_path, kind, **overrides)
    texts = texts_of(reference.config.vocab_size)
    with torch.no_grad():
        expected = [
            reference(torch.tensor([text]), output_hidden_states=True).hidden_states for text in texts
        ]
    for layer in range(1, reference.config.num_hidden_layers + 1):
        found = one_step(loaded(tmp_path, backend_name, layer), texts, [None] * len(texts))
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs[layer][0].numpy(), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "num_labels"), [("bert", 1), ("bert", 3), ("roberta", 1), ("xlm-roberta", 2)]
)
def test_a_classifier_of_pairs_gives_the_logits_of_transformers(
    kind: str, num_labels: int, backend_name: str, tmp_path: Path
) -> None:
    reference = write_encoder(tmp_path, kind, num_labels)
    model = loaded(tmp_path, backend_name)
    assert model.config.classifier is not None and len(model.config.classifier.labels) == num_labels
    assert (model.config.classifier.pooling, model.config.has_logits) == ("cls", False)
    texts = texts_of(reference.config.vocab_size)
    firsts = [len(text) // 2 if kind == "bert" else len(text) for text in texts]
    for text, first, hidden in zip(texts, firsts, one_step(model, texts, firsts), strict=True):
        types = torch.tensor([[0] * first + [1] * (len(text) - first)])
        with torch.no_grad():
            expected = reference(torch.tensor([text]), token_type_ids=types).logits[0].numpy()
        np.testing.assert_allclose(
            model.pooling_heads.apply(Head.CLASSES, hidden[0]), expected, atol=TOLERANCE
        )


def test_token_types_change_what_a_pair_means(backend_name: str) -> None:
    model = random_model(small_encoder(), 16, 8, backend_name=backend_name)
    text = texts_of(97)[2]
    alone, as_pair = (one_step(model, [text], [first])[0] for first in (None, 10))
    assert np.abs(alone - as_pair).max() > 0.1


def test_labels_are_named_as_the_configuration_names_them(tmp_path: Path) -> None:
    write_encoder(tmp_path, "bert", 2)
    assert classifier(tmp_path).labels == ("LABEL_0", "LABEL_1")
    change_config(tmp_path, id2label={"1": "good", "0": "bad"})
    assert classifier(tmp_path).labels == ("bad", "good")
    change_config(tmp_path, id2label={"1": "good", "2": "bad"})
    with pytest.raises(ModelError, match="id2label must be names by the numbers of the outputs, from 0"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, "identity"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
    ],
)
def test_what_becomes_of_a_lone_score_is_what_its_makers_say(
    keys: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    write_encoder(tmp_path, "bert", 1)
    change_config(tmp_path, **keys)
    assert classifier(tmp_path).activation == expected


def test_the_layer_that_pools_for_a_head_may_be_there_or_not(tmp_path: Path) -> None:
    write_encoder(tmp_path, "bert")
    assert "pooler.dense.weight" in stored(tmp_path)
    StoredModel(open_checkpoint(str(tmp_path)))
    change_tensors(tmp_path, {"pooler.dense.weight": None, "pooler.dense.bias": None})
    StoredModel(open_checkpoint(str(tmp_path)))


def test_indices_that_some_files_hold_are_passed_over(tmp_path: Path) -> None:
    write_encoder(tmp_path, "bert")
    change_tensors(tmp_path, {"embeddings.position_ids": torch.arange(600)[None]})
    StoredModel(open_checkpoint(str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pooler.dense.other": torch.zeros(3)}, "tensor pooler.dense.other is not part of a bert model"),
        ({"embeddings.LayerNorm.bias": None}, "tensor embeddings.LayerNorm.bias is missing"),
        (
            {"embeddings.token_type_embeddings.weight": torch.zeros(3, 48)},
            "token_type_embeddings.weight has the shape 3x48; its configuration calls for 2x48",
        ),
        (
            {"embeddings.LayerNorm.bias": torch.zeros(48, dtype=torch.int64)},
            r"LayerNorm.bias holds whole numbers \(I64\) where weights belong",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(
    changes: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    write_encoder(tmp_path, "bert")
    change_tensors(tmp_path, changes)
    with pytest.raises(ModelError, match=message):
        StoredModel(open_checkpoint(str(tmp_path)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"position_embedding_type": "relative_key"}, 'position_embedding_type must be "absolute"'),
        ({"is_decoder": True}, "is_decoder must be false"),
        (
            {"hidden_size": 50},
            r"hidden size \(50\) must be a multiple of the number of attention heads \(6\)",
        ),
        ({"architectures": ["BertForMaskedLM"]}, "the architecture 'BertForMaskedLM' is not supported"),
    ],
)
def test_variants_that_would_be_computed_wrongly_are_refused(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_encoder(tmp_path, "bert")
    change_config(tmp_path, **keys)
    with pytest.raises(ModelError, match=message):
        open_checkpoint(str(tmp_path))


def test_an_activation_that_no_op_computes_is_refused_with_those_that_are(tmp_path: Path) -> None:
    write_encoder(tmp_path, "bert")
    change_config(tmp_path, hidden_act="mish")
    with pytest.raises(
        ModelError, match=r"hidden_act 'mish' is not supported; supported: silu, .*gelu, relu"
    ):
        loaded(tmp_path, BACKENDS[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_labels", [0, 3])
def test_an_encoder_takes_the_bytes_foretold(num_labels: int, dtype: str) -> None:
    config = small_encoder(num_labels)
    model = random_model(config, 16, 4, dtype=dtype, backend_name="torch")._program._forward.__self__
    matrices = [model.embedding, *(part for layer in model.layers for part in weights_of(layer))]
    tables = [
        model.beside.positions,
        model.beside.token_types,
        model.beside.norm.gamma,
        model.beside.norm.beta,
    ]
    norms = [
        tensor for layer in model.layers for block in layer for tensor in (block.norm.gamma, block.norm.beta)
    ]
    held = sum(m.matrix.nbytes + (0 if m.bias is None else m.bias.nbytes) for m in matrices)
    held += sum(tensor.nbytes for tensor in (*tables, *norms))
    heads = sum(
        4 * (dense.weight.size + dense.bias.size)
        for dense in model.pooling_heads.layers.get(Head.CLASSES, ())
    )
    assert held + heads == footprint(config, dtype).weights_bytes


def weights_of(layer: Any) -> list[Any]:
    attention, mlp = layer
    return [attention.projection.weight, attention.output, mlp.up, mlp.down]


def classifier(directory: Path) -> Any:
    return open_checkpoint(str(directory)).config.classifier


def stored(directory: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = load_file(directory / "model.safetensors")
    return tensors


def change_tensors(directory: Path, changes: dict[str, torch.Tensor | None]) -> None:
    """None: without it."""
    tensors = {
        name: tensor for name, tensor in {**stored(directory), **changes}.items() if tensor is not None
    }
    save_file(tensors, directory / "model.safetensors")


def change_config(directory: Path, **keys: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}), encoding="utf-8")
