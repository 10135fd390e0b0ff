"""Decoders that end in a classifier, or in their last states alone, against transformers in float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from noria.config.model import ClassifierConfig, EmbeddingConfig
from noria.config.pooling import Head
from noria.loaders.resolve import open_checkpoint
from support_backends import BACKENDS
from support_batches import Driver
from support_models import hf_config, load, write_tokenizer

TOKENS = list(range(0, 300, 7))
CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}


def write(directory: Path, architecture: str, ending: str, **overrides: Any) -> Any:
    """A checkpoint of that class; the transformers model that it holds."""
    config = hf_config(architecture, pad_token_id=0, **overrides)
    config.architectures = None
    torch.manual_seed(3)
    model = getattr(transformers, CLASSES[architecture] + ending)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn_like(parameter) * 1.5 / parameter.shape[1] ** 0.5)
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return model


def hidden_of(directory: Path, backend: str, head: Head = Head.STATE) -> np.ndarray:
    checkpoint = open_checkpoint(str(directory))
    model = load(checkpoint, 16, 8, backend_name=backend)
    checkpoint.close()
    driver = Driver(model, 16, 8)
    batch = driver.batch([(driver.add(TOKENS), len(TOKENS))])
    outputs = model.forward(type(batch)(**{**_fields(batch), "logit_rows": batch.logit_rows[:0]}))
    assert outputs.logits.shape == (0, 0)
    return model.pooling_heads.apply(head, outputs.hidden)


def _fields(batch: Any) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in batch.__dataclass_fields__}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("architecture", CLASSES)
def test_a_classifier_gives_the_labels_that_transformers_gives(
    tmp_path: Path, architecture: str, backend: str
) -> None:
    labels = {0: "bad", 1: "so so", 2: "good"}
    reference = write(tmp_path, architecture, "ForSequenceClassification", id2label=labels)
    with torch.no_grad():
        expected = reference(torch.tensor([TOKENS])).logits[0].numpy()
    found = hidden_of(tmp_path, backend, Head.CLASSES)[-1]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    config = open_checkpoint(str(tmp_path)).config
    assert config.classifier == ClassifierConfig(("bad", "so so", "good"), "softmax", "last")
    assert not config.has_logits


@pytest.mark.parametrize("architecture", CLASSES)
def test_a_model_without_output_gives_its_last_states(tmp_path: Path, architecture: str) -> None:
    reference = write(tmp_path, architecture, "Model")
    with torch.no_grad():
        expected = reference(torch.tensor([TOKENS])).last_hidden_state[0].numpy()
    np.testing.assert_allclose(hidden_of(tmp_path, BACKENDS[0]), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("stated", "activation"),
    [
        ({"num_labels": 1}, "sigmoid"),
        ({"num_labels": 2}, "softmax"),
        ({"num_labels": 2, "problem_type": "multi_label_classification"}, "sigmoid"),
        ({"num_labels": 1, "problem_type": "regression"}, "identity"),
    ],
)
def test_what_is_made_of_labels_follows_from_the_problem(
    tmp_path: Path, stated: dict[str, Any], activation: str
) -> None:
    write(tmp_path, "llama", "ForSequenceClassification", **stated)
    classifier = open_checkpoint(str(tmp_path)).config.classifier
    assert classifier is not None and classifier.activation == activation


def test_sentence_transformers_modules_say_how_an_embedding_is_made(tmp_path: Path) -> None:
    write(tmp_path, "qwen3", "ForCausalLM")
    kinds = ("Transformer", "Pooling", "Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
    config = open_checkpoint(str(tmp_path)).config
    assert config.embedding == EmbeddingConfig("last", normalize=True)
    assert config.has_logits
