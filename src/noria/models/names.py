"""What each file format calls a model's tensors, and how it stores them.

The logical names are those of `shapes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import ModelConfig
from noria.models.registry import architecture

_SAFETENSORS = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "input_norm": "model.layers.{}.input_layernorm.weight",
    "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
    "q": "model.layers.{}.self_attn.q_proj.",
    "k": "model.layers.{}.self_attn.k_proj.",
    "v": "model.layers.{}.self_attn.v_proj.",
    "o": "model.layers.{}.self_attn.o_proj.",
    "q_norm": "model.layers.{}.self_attn.q_norm.weight",
    "k_norm": "model.layers.{}.self_attn.k_norm.weight",
    "gate": "model.layers.{}.mlp.gate_proj.",
    "up": "model.layers.{}.mlp.up_proj.",
    "down": "model.layers.{}.mlp.down_proj.",
    "classifier.weight": "score.weight",
}

_GGUF = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "input_norm": "blk.{}.attn_norm.weight",
    "mlp_norm": "blk.{}.ffn_norm.weight",
    "q": "blk.{}.attn_q.",
    "k": "blk.{}.attn_k.",
    "v": "blk.{}.attn_v.",
    "o": "blk.{}.attn_output.",
    "q_norm": "blk.{}.attn_q_norm.weight",
    "k_norm": "blk.{}.attn_k_norm.weight",
    "gate": "blk.{}.ffn_gate.",
    "up": "blk.{}.ffn_up.",
    "down": "blk.{}.ffn_down.",
}


@dataclass(frozen=True, slots=True)
class Names:
    """What one file format calls the tensors of an architecture.

    tensors: by logical name, of a layer's parts without `layers.3.` and, of a projection, without `weight` or `bias`
        (which follow on the file's name); {} stands for the layer.
    derived: pattern of names that some files hold and that change no answer: tables that the configuration already
        determines, layers that nothing here makes use of.
    """

    tensors: Mapping[str, str]
    derived: str = "(?!)"


DECODER_NAMES: Mapping[str, Names] = {
    "safetensors": Names(_SAFETENSORS, r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"),
    "gguf": Names(_GGUF, r"rope_freqs\.weight"),
}


@dataclass(frozen=True, slots=True)
class NameMap:
    """The tensor names of one file format for one model."""

    format: str
    config: ModelConfig
    names: Names
    left_out: str = ""  # what the file's names begin with elsewhere, and here do not

    def file_name(self, name: str) -> str:
        """What the file calls the tensor with the logical `name`. ModelError for one that it has no word for."""
        found = self.find(name)
        if found is None:
            raise ModelError(
                f"the architecture {self.config.architecture!r} does not say what its tensor {name!r} is called in "
                f"{self.format}"
            )
        return found

    def find(self, name: str) -> str | None:
        """As file_name; None for a tensor that such files never hold."""
        names = self.names.tensors
        if not name.startswith("layers."):
            found, kinds = names.get(name), []
        else:
            _, layer, part, *kinds = name.split(".")
            found = names[part].format(layer) if part in names else None
        return None if found is None else found.removeprefix(self.left_out) + "".join(kinds)

    def is_derived(self, file_name: str) -> bool:
        """Whether a stored tensor changes no answer."""
        return re.fullmatch(self.names.derived, file_name) is not None

    def restore(self, name: str, array: np.ndarray) -> np.ndarray:
        """The stored tensor in the order that the ops expect; a view where possible."""
        heads = self._interleaved_heads(name)
        return array if heads is None else _split_pairs(array, heads)

    def keeps_order(self, name: str) -> bool:
        """Whether the ops expect the stored tensor's rows as they come."""
        return self._interleaved_heads(name) is None

    def _interleaved_heads(self, name: str) -> int | None:
        """How many heads the tensor holds whose rows are interleaved; None where none are."""
        if self.format != "gguf" or self.config.architecture != "llama" or not name.startswith("layers."):
            return None
        return {"q": self.config.num_heads, "k": self.config.num_kv_heads}.get(name.split(".")[2])


def _split_pairs(array: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head from interleaved (0, h, 1, h + 1, ...; h = head_dim / 2) to (0, 1, ..., h, h + 1, ...).

    GGUF files of Llama models hold q and k for the rotation of neighbouring dimensions.
    """
    pairs = array.reshape(num_heads, array.shape[0] // num_heads // 2, 2, *array.shape[1:])
    return pairs.swapaxes(1, 2).reshape(array.shape)


def name_map(file_format: str, config: ModelConfig, stored: Container[str] = ()) -> NameMap:
    """stored: the file's names: a model that was saved without its output may lack the name of its trunk in them.

    ModelError for a format that the architecture has no names for.
    """
    names = architecture(config).names
    if file_format not in names:
        raise ModelError(
            f"a model of the architecture {config.architecture!r} cannot be read from {file_format}; "
            f"it can from: {', '.join(names)}"
        )
    table = names[file_format]
    trunk = f"{table.tensors['embedding'].partition('.')[0]}."
    is_bare = table.tensors["embedding"].removeprefix(trunk) in stored
    return NameMap(file_format, config, table, trunk if is_bare else "")
