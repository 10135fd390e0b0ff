"""The same model for Noria: once, against its ops. The reference backend and the native one both run it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from noria.extending import (
    Activation,
    AttentionBlock,
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

FAMILY = Family("LoopedForCausalLM", vocab_size=512, intermediate_size=256, max_position=2048)

# What the checkpoint calls the tensors: the names of the torch module.
NAMES = {
    "embedding": "embed.weight",
    "norm": "norm.weight",
    "input_norm": "blocks.{}.norm.weight",
    **{part: f"blocks.{{}}.{part}." for part in ("q", "k", "v", "o", "gate", "up", "down")},
}


@dataclass(frozen=True)
class ParallelBlock:
    attention: AttentionBlock
    gate_up: Weight
    down: Weight

    def run(self, ops: Ops, x: object, layer: int) -> None:
        """layer: of the KV cache, which keeps each loop's keys and values apart."""
        attention = self.attention
        q = ops.norm_qkv(x, attention.norm, attention.projection, layer)
        attended = ops.attend(q, attention.attention, layer)
        gated = ops.norm_glu(x, attention.norm, self.gate_up, Activation.SILU)
        ops.linear_add(attended, attention.output, x)
        ops.linear_add(gated, self.down, x)


class Looped:
    names: ClassVar[dict[str, Names]] = {"safetensors": Names(NAMES)}

    @staticmethod
    def read_config(files: HfFiles) -> ModelConfig:
        """config.json has the usual keys, and num_loops."""
        config = decoder_config(files, FAMILY)
        num_loops = files.config.integer("num_loops", 1)
        num_blocks = config.num_layers
        return replace(config, num_layers=num_blocks * num_loops, extras={"num_blocks": num_blocks})

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        shapes = outer_shapes(config)
        for block in range(config.extras["num_blocks"]):
            shapes |= attention_shapes(config, block) | mlp_shapes(config, block)
            del shapes[f"layers.{block}.mlp_norm"]  # attention and MLP share the input's norm
        return shapes

    def __init__(self, config: ModelConfig, read: TensorReader, packer: Packer, rope: Weight) -> None:
        load = Loader(config, read, packer)
        self.num_layers = config.num_layers
        self.ends = load.ends()
        self.blocks = [
            ParallelBlock(load.attention(block, rope), load.gate_up(block), load.down(block))
            for block in range(config.extras["num_blocks"])
        ]

    def forward(self, ops: Ops) -> Ending:
        x = ops.embed(self.ends.embedding)
        for layer in range(self.num_layers):
            self.blocks[layer % len(self.blocks)].run(ops, x, layer)
        logits = ops.lm_head(x, self.ends.norm, self.ends.head)
        return Ending(logits, ops.hidden(x, self.ends.norm))
