"""BERT and RoBERTa: a post-norm encoder whose tokens see their whole sequence; places and token types are learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from noria.config.model import EncoderConfig, ModelConfig
from noria.config.pooling import Head
from noria.kernels.ops import (
    Activation,
    Attention,
    Buffer,
    EmbeddingSum,
    Ending,
    Norm,
    Ops,
    Packer,
    QkvProjection,
    Reach,
    Weight,
)
from noria.models.names import Names
from noria.models.parts import Loader, TensorReader, activation
from noria.models.pooling_heads import Dense, PoolingHeads
from noria.models.shapes import Shapes, encoder_layer_shapes, encoder_outer_shapes


@dataclass(frozen=True, slots=True)
class PostNormAttention:
    """x = norm(x + output(attention(x)))"""

    projection: QkvProjection
    attention: Attention
    output: Weight
    norm: Norm
    layer: int

    def run(self, ops: Ops, x: Buffer) -> None:
        q = ops.norm_qkv(x, None, self.projection, self.layer)
        ops.linear_add(ops.attend(q, self.attention, self.layer), self.output, x)
        ops.normalise(x, self.norm)


@dataclass(frozen=True, slots=True)
class PostNormMlp:
    """x = norm(x + down(activation(up(x))))"""

    up: Weight
    down: Weight
    norm: Norm
    activation: Activation

    def run(self, ops: Ops, x: Buffer) -> None:
        ops.linear_add(ops.norm_activate(x, None, self.up, self.activation), self.down, x)
        ops.normalise(x, self.norm)


_TENSORS = {
    "embedding": "embeddings.word_embeddings.weight",
    "positions": "embeddings.position_embeddings.weight",
    "token_types": "embeddings.token_type_embeddings.weight",
    "embedding_norm.weight": "embeddings.LayerNorm.weight",
    "embedding_norm.bias": "embeddings.LayerNorm.bias",
    "q": "encoder.layer.{}.attention.self.query.",
    "k": "encoder.layer.{}.attention.self.key.",
    "v": "encoder.layer.{}.attention.self.value.",
    "o": "encoder.layer.{}.attention.output.dense.",
    "attention_norm": "encoder.layer.{}.attention.output.LayerNorm.",
    "up": "encoder.layer.{}.intermediate.dense.",
    "down": "encoder.layer.{}.output.dense.",
    "mlp_norm": "encoder.layer.{}.output.LayerNorm.",
}
_INDICES = r"(\w+\.)?embeddings\.(position|token_type)_ids"
# Where hidden states are wanted, the layer that would pool them for a head is of no use.
_ENCODER_NAMES = {"safetensors": Names(_TENSORS, rf"{_INDICES}|pooler\.dense\.(weight|bias)")}


def _names_with_head(prefix: str, pooler: str, classifier: str) -> dict[str, Names]:
    """prefix: of the encoder. pooler, classifier: the head's two layers."""
    tensors = {name: f"{prefix}.{stored}" for name, stored in _TENSORS.items()}
    for layer, stored in (("pooler", pooler), ("classifier", classifier)):
        tensors |= {f"{layer}.{kind}": f"{stored}.{kind}" for kind in ("weight", "bias")}
    return {"safetensors": Names(tensors, _INDICES)}


class Bert:
    names: ClassVar[Mapping[str, Names]] = _ENCODER_NAMES

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        shapes = encoder_outer_shapes(config, encoder_of(config))
        for layer in range(config.num_layers):
            shapes |= encoder_layer_shapes(config, layer)
        return shapes

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer, rope: Weight) -> None:
        encoder = encoder_of(config)
        load = _Loader(config, read, packer)
        self.embedding = packer.pack_vocabulary(read.matrix("embedding"))
        self.beside = EmbeddingSum(
            packer.pack_table(read.vector("positions")[encoder.position_offset :]),
            packer.pack_table(read.vector("token_types")),
            load.layer_norm("embedding_norm"),
        )
        self.layers = [(load.attention_block(i, rope), load.mlp_block(i)) for i in range(config.num_layers)]
        self.pooling_heads = load.pooling_heads()

    def forward(self, ops: Ops) -> Ending:
        x = ops.embed(self.embedding, self.beside)
        for attention, mlp in self.layers:
            attention.run(ops, x)
            mlp.run(ops, x)
        return Ending(None, ops.hidden(x, None))


class BertClassifier(Bert):
    names = _names_with_head("bert", "bert.pooler.dense", "classifier")


class Roberta(Bert):
    """The same layers; places are counted from behind that of the padding token."""


class RobertaClassifier(Bert):
    names = _names_with_head("roberta", "classifier.dense", "classifier.out_proj")


class _Loader(Loader):
    """Packs an encoder's blocks."""

    def layer_norm(self, name: str) -> Norm:
        gamma, beta = (
            self._packer.pack_vector(self._read.vector(f"{name}.{part}")) for part in ("weight", "bias")
        )
        return Norm(gamma, self.config.norm_eps, beta)

    def pooling_heads(self) -> PoolingHeads:
        """A classifier's two layers, where there is one."""
        if self.config.classifier is None:
            return PoolingHeads()
        layers = (self._dense("pooler", np.tanh), self._dense("classifier", None))
        return PoolingHeads({Head.CLASSES: layers})

    def _dense(self, name: str, activation: Callable[[np.ndarray], np.ndarray] | None) -> Dense:
        weight, bias = (self._read.vector(f"{name}.{part}").astype(np.float64) for part in ("weight", "bias"))
        return Dense(weight, bias) if activation is None else Dense(weight, bias, activation)

    def attention_block(self, layer: int, rope: Weight) -> PostNormAttention:
        prefix = f"layers.{layer}."
        return PostNormAttention(
            projection=self.projection(layer, rope),
            attention=Attention(self.heads, self.config.head_dim**-0.5, reach=Reach.WHOLE),
            output=self.linear(prefix + "o", (self.config.hidden_size, self.heads.query_size), True),
            norm=self.layer_norm(prefix + "attention_norm"),
            layer=layer,
        )

    def mlp_block(self, layer: int) -> PostNormMlp:
        config, prefix = self.config, f"layers.{layer}."
        return PostNormMlp(
            up=self.linear(prefix + "up", (config.intermediate_size, config.hidden_size), True),
            down=self.linear(prefix + "down", (config.hidden_size, config.intermediate_size), True),
            norm=self.layer_norm(prefix + "mlp_norm"),
            activation=activation(config),
        )


def encoder_of(config: ModelConfig) -> EncoderConfig:
    assert config.encoder is not None, f"{config.architecture} is an encoder, and its configuration none"
    return config.encoder
