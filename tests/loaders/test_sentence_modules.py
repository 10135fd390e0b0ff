"""What a sentence-transformers directory says of pooling and of the longest text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noria.config.errors import ModelError
from noria.config.model import EmbeddingConfig, ModelConfig
from noria.loaders.sentence_modules import with_sentence_modules
from support_encoders import small_encoder

FLAGS = (
    "pooling_mode_cls_token",
    "pooling_mode_mean_tokens",
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
)


def read(directory: Path, modules: list[Any] | None, pooling: dict[str, Any], **length: Any) -> ModelConfig:
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if modules is not None:
        (directory / "modules.json").write_text(json.dumps(modules))
    if length:
        (directory / "sentence_bert_config.json").write_text(json.dumps(length))
    return with_sentence_modules(small_encoder(), directory)


def modules(*kinds: str) -> list[dict[str, Any]]:
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    return [
        {"idx": i, "type": f"sentence_transformers.models.{kind}", "path": paths.get(kind, f"{i}_{kind}")}
        for i, kind in enumerate(kinds)
    ]


WHOLE = modules("Transformer", "Pooling", "Normalize")


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": ["cls"]}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_old_and_new_ways_to_name_the_pooling_are_read(
    pooling: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    stated = pooling if "pooling_mode" in pooling else {**dict.fromkeys(FLAGS, False), **pooling}
    assert read(tmp_path, WHOLE, stated).embedding == EmbeddingConfig(expected, normalize=True)


def test_vectors_are_normalised_where_a_module_says_so(tmp_path: Path) -> None:
    found = read(tmp_path, modules("Transformer", "Pooling"), {"pooling_mode": "mean"})
    assert found.embedding == EmbeddingConfig("mean", normalize=False)


@pytest.mark.parametrize(("stated", "expected"), [(256, 256), (9999, 600), (None, 600)])
def test_texts_are_as_long_as_the_directory_allows_and_the_model_can(
    stated: int | None, expected: int, tmp_path: Path
) -> None:
    assert read(tmp_path, WHOLE, {"pooling_mode": "mean"}, max_seq_length=stated).max_position == expected


def test_a_directory_without_modules_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, None, {}) == small_encoder()


@pytest.mark.parametrize(
    ("listed", "pooling", "message"),
    [
        (
            modules("Transformer", "Pooling", "Dense"),
            {"pooling_mode": "mean"},
            "the module 'Dense' is not supported",
        ),
        (WHOLE, {"pooling_mode": "max"}, "pooling by 'max' is not supported; supported is one of lasttoken"),
        (WHOLE, {"pooling_mode": ["cls", "mean"]}, r"pooling by \['cls', 'mean'\] is not supported"),
        (WHOLE, dict.fromkeys(FLAGS, True), "pooling by .* is not supported"),
        (WHOLE, {}, r"pooling by \[\] is not supported"),
        ({}, {}, "must hold a JSON list"),
        ([1], {}, "must hold a list of objects, found 1"),
        ([{"idx": 0}], {}, "type must be a string|type is missing"),
    ],
)
def test_what_would_make_other_vectors_is_refused(
    listed: Any, pooling: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        read(tmp_path, listed, pooling)
