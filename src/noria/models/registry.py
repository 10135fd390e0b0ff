"""Which class builds which architecture: those built in, and those that installed packages add.

To add a built-in model, add its file and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, Protocol

from noria.config.errors import ModelError, PluginError
from noria.config.model import ModelConfig
from noria.config.plugins import MODELS_GROUP, Entry, Table
from noria.kernels.ops import Ending, Ops, Packer, Weight
from noria.models.parts import TensorReader
from noria.models.shapes import Shapes

if TYPE_CHECKING:
    from noria.models.names import Names


class Architecture(Protocol):
    """A model as its file defines it. names: by file format, what its checkpoints call the tensors."""

    names: ClassVar[Mapping[str, Names]]

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        """Every tensor that a checkpoint must hold, by logical name."""
        ...

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer, rope: Weight) -> None:
        """Pack every tensor, each read once. rope: the packed table of the rotation, for `QkvProjection`."""
        ...

    def forward(self, ops: Ops) -> Ending:
        """The ops of one step."""
        ...


MODELS = Table(
    MODELS_GROUP,
    {
        "llama": "noria.models.llama:Llama",
        "mistral": "noria.models.mistral:Mistral",
        "qwen2": "noria.models.qwen2:Qwen2",
        "qwen3": "noria.models.qwen3:Qwen3",
        "bert": "noria.models.bert:Bert",
        "bert_classifier": "noria.models.bert:BertClassifier",
        "roberta": "noria.models.bert:Roberta",
        "roberta_classifier": "noria.models.bert:RobertaClassifier",
    },
)


_REQUIRED = ("names", "shapes", "forward")


def architecture(config: ModelConfig) -> type[Architecture]:
    """ModelError for an architecture that nothing here can build, PluginError for one whose package is broken."""
    entry = _entry(config)
    found: type[Architecture] = entry.load()
    missing = [name for name in _REQUIRED if not hasattr(found, name)]
    if missing:
        raise PluginError(f"{entry.where} is no architecture: it has no {', '.join(missing)}")
    return found


def blamed(config: ModelConfig) -> AbstractContextManager[None]:
    """For running an architecture's own code: what an installed one raises becomes a PluginError."""
    return _entry(config).blamed()


def _entry(config: ModelConfig) -> Entry:
    entry = MODELS.find(config.architecture)
    if entry is None:
        supported = ", ".join(sorted(MODELS.names()))
        raise ModelError(f"architecture {config.architecture!r} is not supported; supported: {supported}")
    return entry
