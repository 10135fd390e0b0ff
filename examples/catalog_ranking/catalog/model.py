"""The model for Noria, against its ops."""

from __future__ import annotations

from typing import ClassVar

from noria.extending import (
    Ending,
    Family,
    HfFiles,
    Loader,
    ModelConfig,
    Names,
    Ops,
    Packer,
    Shapes,
    TensorReader,
    Weight,
    attention_shapes,
    decoder_config,
    mlp_shapes,
    outer_shapes,
)

FAMILY = Family("CatalogForCausalLM", vocab_size=64, intermediate_size=128, max_position=512)
NAMES = {
    "embedding": "embed.weight",
    "norm": "norm.weight",
    "head": "head.weight",
    "input_norm": "layers.{}.norm.weight",
    **{part: f"layers.{{}}.{part}." for part in ("q", "k", "v", "o")},
    # There is one MLP, after the last layer.
    "mlp_norm": "mlp.norm.weight",
    **{part: f"mlp.{part}." for part in ("gate", "up", "down")},
}


class Catalog:
    names: ClassVar[dict[str, Names]] = {"safetensors": Names(NAMES)}

    @staticmethod
    def read_config(files: HfFiles) -> ModelConfig:
        return decoder_config(files, FAMILY)

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        shapes = outer_shapes(config)
        for layer in range(config.num_layers):
            shapes |= attention_shapes(config, layer)
        return shapes | mlp_shapes(config, config.num_layers - 1)

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer, rope: Weight) -> None:
        load = Loader(config, read, packer)
        self.ends = load.ends()
        self.layers = [load.attention(layer, rope) for layer in range(config.num_layers)]
        self.mlp = load.mlp(config.num_layers - 1)

    def forward(self, ops: Ops) -> Ending:
        x = ops.embed(self.ends.embedding)
        for layer in self.layers:
            layer.run(ops, x)
        self.mlp.run(ops, x)
        logits = ops.lm_head(x, self.ends.norm, self.ends.head)
        return Ending(logits, ops.hidden(x, self.ends.norm))
