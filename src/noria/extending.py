"""Everything that a package of your own needs to add an architecture or a decoding rule: see docs/extending.md."""

from __future__ import annotations

from noria.config.errors import ModelError, RequestError
from noria.config.model import ModelConfig, RopeConfig
from noria.kernels.ops import (
    Activation,
    Attention,
    Buffer,
    Ending,
    Heads,
    Norm,
    Ops,
    Packer,
    QkvProjection,
    Weight,
)
from noria.loaders.fields import Fields
from noria.loaders.hf_config import Family, HfFiles, decoder_config
from noria.models.names import DECODER_NAMES, Names
from noria.models.parts import AttentionBlock, Ends, Loader, MlpBlock, TensorReader, run_decoder
from noria.models.shapes import Shapes, attention_shapes, head_norm_shapes, mlp_shapes, outer_shapes

__all__ = [
    "DECODER_NAMES",
    "Activation",
    "Attention",
    "AttentionBlock",
    "Buffer",
    "Ending",
    "Ends",
    "Family",
    "Fields",
    "Heads",
    "HfFiles",
    "Loader",
    "MlpBlock",
    "ModelConfig",
    "ModelError",
    "Names",
    "Norm",
    "Ops",
    "Packer",
    "QkvProjection",
    "RequestError",
    "RopeConfig",
    "Shapes",
    "TensorReader",
    "Weight",
    "attention_shapes",
    "decoder_config",
    "head_norm_shapes",
    "mlp_shapes",
    "outer_shapes",
    "run_decoder",
]
