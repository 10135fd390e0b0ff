"""What a sentence-transformers directory says beside its model: how hidden states become a vector, and of how long a
text.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from noria.config.errors import ModelError
from noria.config.model import EmbeddingConfig, ModelConfig
from noria.loaders.fields import Fields, shorten
from noria.loaders.json_file import read_object, read_optional_list, read_optional_object

_KNOWN = ("Transformer", "Pooling", "Normalize", "Dropout")  # Dropout does nothing but in training
_POOLING = {"lasttoken": "last", "mean": "mean", "cls": "cls"}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def with_sentence_modules(config: ModelConfig, directory: Path) -> ModelConfig:
    """config with what the directory's modules say; as it is where there are none. Raises ModelError."""
    path = directory / "modules.json"
    modules = [Fields(_checked(entry, path), str(path)) for entry in read_optional_list(path)]
    kinds = {module.text("type").rpartition(".")[2]: module for module in modules}
    unknown = [kind for kind in kinds if kind not in _KNOWN]
    if unknown:
        raise ModelError(
            f"{path}: the module {shorten(unknown[0])} is not supported; supported are {', '.join(_KNOWN)}"
        )
    length_path = directory / "sentence_bert_config.json"
    length = Fields(read_optional_object(length_path), str(length_path)).optional_integer("max_seq_length")
    if length is not None:
        config = replace(config, max_position=min(config.max_position, length))
    if "Pooling" not in kinds:
        return config
    pooling = _pooling(directory / kinds["Pooling"].text("path") / "config.json")
    return replace(config, embedding=EmbeddingConfig(pooling, normalize="Normalize" in kinds))


def _checked(entry: object, path: Path) -> dict:
    if not isinstance(entry, dict):
        raise ModelError(f"{path}: must hold a list of objects, found {shorten(entry)}")
    return entry


def _pooling(path: Path) -> str:
    """Of a mode, or of a flag for each as older versions wrote them."""
    fields = Fields(read_object(path), str(path))
    mode = fields.values.get("pooling_mode")
    if mode is None:
        mode = [named for flag, named in _FLAGS.items() if fields.flag(flag, False)]
    if isinstance(mode, list) and len(mode) == 1:
        mode = mode[0]
    if not isinstance(mode, str) or mode not in _POOLING:
        raise ModelError(
            f"{path}: pooling by {shorten(mode)} is not supported; supported is one of {', '.join(_POOLING)}"
        )
    return _POOLING[mode]
