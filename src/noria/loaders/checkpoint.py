"""What every model file format looks like to the rest of Noria."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from noria.config.model import ModelConfig
from noria.config.tokenizer import TokenizerSpec


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """name: the file's own. shape: row-major, outermost first ([out, in] for a linear layer)."""

    name: str
    shape: tuple[int, ...]
    kind: str  # F32, F16, BF16, Q8_0, Q4_1, ...
    num_bytes: int  # as stored

    @property
    def num_elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Sampling values that the checkpoint recommends (generation_config.json); only the stated ones."""

    values: Mapping[str, Any] = field(default_factory=dict)


class Checkpoint(Protocol):
    """An opened model: headers read and checked, tensors read on demand. Both raise ModelError."""

    format: str  # "gguf" | "safetensors": picks the model's name map
    path: str
    config: ModelConfig
    tokenizer: TokenizerSpec
    generation_defaults: GenerationDefaults
    tensors: Mapping[str, TensorInfo]

    def read(self, name: str) -> np.ndarray:
        """The tensor as float32, dequantised, in its row-major shape. A fresh array."""
        ...

    def read_raw(self, name: str, start: int = 0, end: int | None = None) -> np.ndarray:
        """The tensor's bytes [start, end) as stored, uint8, read-only; all [num_bytes] of them unless stated."""
        ...

    def close(self) -> None: ...
