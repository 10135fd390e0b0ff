"""Which class builds which architecture. To add a model, add its file and a line here."""

from __future__ import annotations

from typing import Protocol

from noria.config.errors import ModelError
from noria.config.model import ModelConfig
from noria.kernels.ops import Buffer, Ops, Packer, Weight
from noria.models.llama import Llama
from noria.models.mistral import Mistral
from noria.models.parts import TensorReader
from noria.models.qwen2 import Qwen2
from noria.models.qwen3 import Qwen3
from noria.models.shapes import Shapes


class Architecture(Protocol):
    """A model as its file defines it."""

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        """Every tensor that a checkpoint must hold, by logical name."""
        ...

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer, rope: Weight) -> None: ...

    def forward(self, ops: Ops) -> Buffer:
        """The ops of one step, ending in the logits."""
        ...


_ARCHITECTURES: dict[str, type[Architecture]] = {
    "llama": Llama,
    "mistral": Mistral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
}


def architecture(config: ModelConfig) -> type[Architecture]:
    """ModelError for an architecture that nothing here can build."""
    found = _ARCHITECTURES.get(config.architecture)
    if found is None:
        supported = ", ".join(sorted(_ARCHITECTURES))
        raise ModelError(f"architecture {config.architecture!r} is not supported; supported: {supported}")
    return found
