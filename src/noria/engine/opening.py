"""A model's files, found and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noria.config.asked import ModelOptions
from noria.config.errors import ConfigError
from noria.config.tokenizer import TokenizerSpec
from noria.loaders.checkpoint import Checkpoint
from noria.loaders.hf_tokenizer import HfTokenizer
from noria.loaders.pull import DEFAULT_MODEL
from noria.loaders.resolve import open_checkpoint


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model whose files were found and checked; no weights are in memory yet.

    name: as it was asked for. generation_defaults: sampling values its makers recommend, unless declined.
    """

    name: str
    checkpoint: Checkpoint
    tokenizer: TokenizerSpec
    generation_defaults: Mapping[str, Any]


def open_model(options: ModelOptions) -> OpenedModel:
    """Find, open and check a model's files. Raises ModelError, ConfigError."""
    name = options.model or DEFAULT_MODEL
    checkpoint = open_checkpoint(name, options.revision)
    takes_defaults = options.generation_config == "auto"
    defaults = checkpoint.generation_defaults.values if takes_defaults else {}
    return OpenedModel(name, checkpoint, _tokenizer_spec(options, checkpoint), defaults)


def _tokenizer_spec(options: ModelOptions, checkpoint: Checkpoint) -> TokenizerSpec:
    spec = checkpoint.tokenizer
    if options.tokenizer is not None:
        spec = _other_tokenizer(options.tokenizer, checkpoint)
    if options.chat_template is not None:
        spec = replace(spec, chat_templates=(("default", _read_template(options.chat_template)),))
    return replace(spec, content_format=options.chat_template_content_format)


def _other_tokenizer(path: str, checkpoint: Checkpoint) -> TokenizerSpec:
    if path.endswith(".gguf"):
        other = open_checkpoint(path)
        other.close()
        return other.tokenizer
    config = checkpoint.config
    return HfTokenizer(Path(path)).spec(config.bos_token_id, config.eos_token_ids)


def _read_template(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"chat_template {path} cannot be read: {error}") from error
