"""A GGUF model as a Checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import ModelConfig
from noria.config.tokenizer import TokenizerSpec
from noria.loaders.checkpoint import GenerationDefaults, TensorInfo
from noria.loaders.fields import Fields
from noria.loaders.gguf_config import model_config
from noria.loaders.gguf_file import GgufFile, StoredTensor
from noria.loaders.gguf_parts import read_parts
from noria.loaders.gguf_tokenizer import tokenizer_spec
from noria.loaders.tensor_reading import read_floats

# metadata key -> name of the sampling parameter
_SAMPLING_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


class GgufCheckpoint:
    """Opening reads and checks every header and raises ModelError; tensors are read on demand.

    Names and numbers are the file's own. In particular, files of architecture "llama" store the rows of
    attn_q and attn_k with the two halves of each head's rotary dimensions interleaved; undoing that belongs to
    the model's name map.
    """

    format = "gguf"

    def __init__(self, path: Path) -> None:
        parts = read_parts(path)
        fields = Fields(parts[0].metadata, str(parts[0].path))
        self._homes: dict[str, GgufFile] = {name: part for part in parts for name in part.tensors}
        stored = {name: part.tensors[name] for name, part in self._homes.items()}
        self.path = str(path)
        self.tensors: Mapping[str, TensorInfo] = {name: _info(tensor) for name, tensor in stored.items()}
        self.tokenizer: TokenizerSpec = tokenizer_spec(fields)
        self.config: ModelConfig = model_config(
            fields, stored, self.read, self.tokenizer.bos_token_id, self.tokenizer.eos_token_ids
        )
        self.generation_defaults = _generation_defaults(fields)
        _check_vocabulary(self.tokenizer, self.config, self.path)

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32, dequantised, in its row-major shape. A fresh array."""
        part = self._homes[name]
        return read_floats(part.data, part.tensors[name].offset, self.tensors[name])

    def read_raw(self, name: str, start: int = 0, end: int | None = None) -> np.ndarray:
        """The tensor's bytes [start, end) as stored, uint8, read-only; all [num_bytes] of them unless stated."""
        part = self._homes[name]
        tensor = part.tensors[name]
        end = tensor.num_bytes if end is None else min(end, tensor.num_bytes)
        return part.data.read(tensor.offset + start, end - start)

    def close(self) -> None:
        """Let the files go. Arrays that were read stay valid."""
        self._homes = {}


def _info(tensor: StoredTensor) -> TensorInfo:
    return TensorInfo(tensor.name, tensor.shape, tensor.type.name, tensor.num_bytes)


def _generation_defaults(fields: Fields) -> GenerationDefaults:
    values = {}
    for key, name in _SAMPLING_KEYS.items():
        is_whole = name == "top_k"
        value = fields.optional_integer(key, low=-1) if is_whole else fields.optional_number(key, above=None)
        if value is not None:
            values[name] = value
    return GenerationDefaults(values)


def _check_vocabulary(tokenizer: TokenizerSpec, config: ModelConfig, path: str) -> None:
    num_tokens = len(tokenizer.vocabulary.tokens) if tokenizer.vocabulary else 0
    if num_tokens > config.vocab_size:
        raise ModelError(
            f"{path}: the tokenizer has {num_tokens} tokens, more than the model's vocabulary of "
            f"{config.vocab_size}"
        )
