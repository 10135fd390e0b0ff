"""The blocks that decoder models share: how they are loaded, and how they run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import ModelConfig
from noria.config.pooling import Head
from noria.kernels.ops import (
    Activation,
    Attention,
    Buffer,
    Ending,
    Heads,
    Matrix,
    Norm,
    Ops,
    Packer,
    QkvProjection,
    Weight,
)
from noria.models.pooling_heads import Dense, PoolingHeads

HeadNorms = tuple[Norm | None, Norm | None]  # over each query head, over each key head


class TensorReader(Protocol):
    """A checkpoint's tensors by logical name, in the ops' order. Each is to be read once."""

    def matrix(self, name: str) -> Matrix:
        """[out, in], still in its file."""
        ...

    def vector(self, name: str) -> np.ndarray:
        """[n] float32"""
        ...


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """x += output(attention(norm(x)))"""

    norm: Norm
    projection: QkvProjection
    attention: Attention
    output: Weight
    layer: int

    def run(self, ops: Ops, x: Buffer) -> None:
        q = ops.norm_qkv(x, self.norm, self.projection, self.layer)
        ops.linear_add(ops.attend(q, self.attention, self.layer), self.output, x)


@dataclass(frozen=True, slots=True)
class MlpBlock:
    """x += down(activation(gate(norm(x))) * up(norm(x)))"""

    norm: Norm
    gate_up: Weight
    down: Weight
    activation: Activation

    def run(self, ops: Ops, x: Buffer) -> None:
        ops.linear_add(ops.norm_glu(x, self.norm, self.gate_up, self.activation), self.down, x)


@dataclass(frozen=True, slots=True)
class Ends:
    """What stands before and after the layers. The head is the embedding's own handle when they are tied, and None
    where there are no logits.
    """

    embedding: Weight
    norm: Norm
    head: Weight | None


class Loader:
    """Packs the blocks of one model, tensor by tensor: those of `noria.models.shapes`, by the names that it has there.

    Raises ModelError for a tensor that cannot be read.
    """

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer) -> None:
        self.config = config
        self.heads = Heads(config.num_heads, config.num_kv_heads, config.head_dim)
        self._read = read
        self._packer = packer

    def ends(self) -> Ends:
        """`embedding` and `head` [V, H], `norm` [H]."""
        config = self.config
        embedding = self._packer.pack_vocabulary(self._read.matrix("embedding"))
        head = embedding if config.has_logits else None
        if config.has_logits and not config.tie_word_embeddings:
            head = self._packer.pack_vocabulary(self._read.matrix("head"))
        return Ends(embedding, self.norm("norm"), head)

    def pooling_heads(self) -> PoolingHeads:
        """A classifier's single layer, where there is one."""
        if self.config.classifier is None:
            return PoolingHeads()
        weight = self._read.matrix("classifier.weight").floats().astype(np.float64)
        return PoolingHeads({Head.CLASSES: (Dense(weight),)})

    def norm(self, name: str) -> Norm:
        """A vector [H], or [D] of a head, with the configuration's epsilon."""
        return Norm(self._packer.pack_vector(self._read.vector(name)), self.config.norm_eps)

    def attention(self, layer: int, rope: Weight, head_norms: HeadNorms = (None, None)) -> AttentionBlock:
        """A layer's `input_norm`, `q`, `k`, `v` and `o`, and its window. rope: as the architecture is given it."""
        config, heads, prefix = self.config, self.heads, f"layers.{layer}."
        return AttentionBlock(
            norm=self.norm(prefix + "input_norm"),
            projection=self.projection(layer, rope, head_norms),
            attention=Attention(heads, config.head_dim**-0.5, config.window(layer)),
            output=self.linear(prefix + "o", (config.hidden_size, heads.query_size), config.output_bias),
            layer=layer,
        )

    def projection(self, layer: int, rope: Weight, head_norms: HeadNorms = (None, None)) -> QkvProjection:
        """`q`, `k` and `v` as one matrix [Hq * D + 2 * Hkv * D, H], with their biases if there are such."""
        heads, names = self.heads, [f"layers.{layer}.{part}" for part in ("q", "k", "v")]
        shape = (heads.query_size + 2 * heads.kv_size, self.config.hidden_size)
        qkv = self._packer.pack_linear(shape, self._weights(names), self._biases(names, self.config.qkv_bias))
        return QkvProjection(qkv, heads, rope, *head_norms)

    def head_norms(self, layer: int) -> HeadNorms:
        """`q_norm` and `k_norm`, [D] each."""
        return self.norm(f"layers.{layer}.q_norm"), self.norm(f"layers.{layer}.k_norm")

    def mlp(self, layer: int) -> MlpBlock:
        """A layer's `mlp_norm`, `gate`, `up` and `down`."""
        return MlpBlock(
            norm=self.norm(f"layers.{layer}.mlp_norm"),
            gate_up=self.gate_up(layer),
            down=self.down(layer),
            activation=activation(self.config),
        )

    def gate_up(self, layer: int) -> Weight:
        """`gate` and `up` as one matrix [2 * F, H], for `norm_glu`."""
        config, names = self.config, [f"layers.{layer}.gate", f"layers.{layer}.up"]
        shape = (2 * config.intermediate_size, config.hidden_size)
        return self._packer.pack_glu(shape, self._weights(names), self._biases(names, config.mlp_bias))

    def down(self, layer: int) -> Weight:
        """[H, F]"""
        config = self.config
        shape = (config.hidden_size, config.intermediate_size)
        return self.linear(f"layers.{layer}.down", shape, config.mlp_bias)

    def linear(self, name: str, shape: tuple[int, int], has_bias: bool) -> Weight:
        """`name`.weight [out, in], and `name`.bias [out] if there is one."""
        return self._packer.pack_linear(shape, self._weights([name]), self._biases([name], has_bias))

    def _weights(self, names: list[str]) -> list[Matrix]:
        return [self._read.matrix(f"{name}.weight") for name in names]

    def _biases(self, names: list[str], present: bool) -> np.ndarray | None:
        return np.concatenate([self._read.vector(f"{name}.bias") for name in names]) if present else None


def activation(config: ModelConfig) -> Activation:
    """ModelError for a function that no op computes."""
    try:
        return Activation(config.hidden_act)
    except ValueError:
        supported = ", ".join(kind.value for kind in Activation)
        raise ModelError(
            f"hidden_act {config.hidden_act!r} is not supported; supported: {supported}"
        ) from None


def run_decoder(ops: Ops, ends: Ends, layers: Iterable[tuple[AttentionBlock, MlpBlock]]) -> Ending:
    """Embed, run the layers on the residual stream, give its rows as logits and as they are."""
    x = ops.embed(ends.embedding)
    for attention, mlp in layers:
        attention.run(ops, x)
        mlp.run(ops, x)
    logits = None if ends.head is None else ops.lm_head(x, ends.norm, ends.head)
    return Ending(logits, ops.hidden(x, ends.norm))
