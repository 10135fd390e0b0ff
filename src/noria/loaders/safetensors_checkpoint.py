"""A Hugging Face model directory with safetensors weights as a Checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from noria.config.model import ModelConfig
from noria.config.tokenizer import TokenizerSpec
from noria.loaders.checkpoint import TensorInfo
from noria.loaders.fields import Fields
from noria.loaders.hf_config import HfFiles, model_config
from noria.loaders.hf_generation import generation_defaults
from noria.loaders.hf_tokenizer import HfTokenizer
from noria.loaders.json_file import read_object, read_optional_object
from noria.loaders.safetensors_file import SafetensorsFile
from noria.loaders.safetensors_shards import read_shards
from noria.loaders.sentence_modules import with_sentence_modules
from noria.loaders.tensor_reading import read_floats


class SafetensorsCheckpoint:
    """Opening reads and checks every file's header and raises ModelError; tensors are read on demand."""

    format = "safetensors"

    def __init__(self, directory: Path) -> None:
        config_path = directory / "config.json"
        fields = Fields(read_object(config_path), str(config_path))
        generation_path = directory / "generation_config.json"
        generation = Fields(read_optional_object(generation_path), str(generation_path))
        files = read_shards(directory)
        tokenizer = HfTokenizer(directory)
        self._homes: dict[str, SafetensorsFile] = {name: file for file in files for name in file.tensors}
        self.path = str(directory)
        self.tensors: Mapping[str, TensorInfo] = {
            tensor.name: TensorInfo(tensor.name, tensor.shape, tensor.dtype, tensor.num_bytes)
            for file in files
            for tensor in file.tensors.values()
        }
        said = HfFiles(fields, generation, len(self.tensors), tokenizer.eos_token_id)
        self.config: ModelConfig = with_sentence_modules(model_config(said), directory)
        self.tokenizer: TokenizerSpec = tokenizer.spec(self.config.bos_token_id, self.config.eos_token_ids)
        self.generation_defaults = generation_defaults(generation)

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32, in its row-major shape. A fresh array."""
        file = self._homes[name]
        return read_floats(file.data, file.tensors[name].offset, self.tensors[name])

    def read_raw(self, name: str, start: int = 0, end: int | None = None) -> np.ndarray:
        """The tensor's bytes [start, end) as stored, uint8, read-only; all [num_bytes] of them unless stated."""
        file = self._homes[name]
        tensor = file.tensors[name]
        end = tensor.num_bytes if end is None else min(end, tensor.num_bytes)
        return file.data.read(tensor.offset + start, end - start)

    def close(self) -> None:
        """Let the files go. Arrays that were read stay valid."""
        self._homes = {}
