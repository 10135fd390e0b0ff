"""Mistral: Llama's layer without biases; a query may look back on a window of tokens only."""

from __future__ import annotations

from noria.config.model import ModelConfig
from noria.kernels.ops import Ending, Ops, Packer, Weight
from noria.models.names import DECODER_NAMES
from noria.models.parts import Loader, TensorReader, run_decoder
from noria.models.shapes import Shapes, attention_shapes, mlp_shapes, outer_shapes


class Mistral:
    names = DECODER_NAMES

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        shapes = outer_shapes(config)
        for layer in range(config.num_layers):
            shapes |= attention_shapes(config, layer) | mlp_shapes(config, layer)
        return shapes

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer, rope: Weight) -> None:
        load = Loader(config, read, packer)
        self.ends = load.ends()
        self.pooling_heads = load.pooling_heads()
        self.layers = [(load.attention(layer, rope), load.mlp(layer)) for layer in range(config.num_layers)]

    def forward(self, ops: Ops) -> Ending:
        return run_decoder(ops, self.ends, self.layers)
