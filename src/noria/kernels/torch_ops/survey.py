"""Which products a model makes, found by walking its forward once with nothing to compute."""

from __future__ import annotations

from noria.kernels.ops import Activation, Attention, EmbeddingSum, Forward, Heads, Norm, QkvProjection
from noria.kernels.torch_ops.linear import LinearWeight


class Survey:
    """Ops that note their constants. Buffers are None.

    panel_shapes: [N, K] of every panel that a linear multiplies by. heads: of every attention.
    """

    def __init__(self, forward: Forward) -> None:
        self.panel_shapes: set[tuple[int, int]] = set()
        self.heads: set[Heads] = set()
        forward(self)

    def embed(self, table: LinearWeight, beside: EmbeddingSum | None = None) -> None:
        """Looks up rows, multiplies nothing."""

    def norm_qkv(self, x: None, norm: Norm | None, projection: QkvProjection, layer: int) -> None:
        self.panel_shapes |= projection.weight.panel_shapes()

    def attend(self, q: None, attention: Attention, layer: int) -> None:
        self.heads.add(attention.heads)

    def linear_add(self, inputs: None, weight: LinearWeight, x: None) -> None:
        self.panel_shapes |= weight.panel_shapes()

    def norm_glu(self, x: None, norm: Norm | None, weight: LinearWeight, activation: Activation) -> None:
        self.panel_shapes |= weight.panel_shapes()

    def norm_activate(self, x: None, norm: Norm | None, weight: LinearWeight, activation: Activation) -> None:
        self.panel_shapes |= weight.panel_shapes()

    def normalise(self, x: None, norm: Norm) -> None:
        """Multiplies nothing."""

    def lm_head(self, x: None, norm: Norm, weight: LinearWeight) -> None:
        self.panel_shapes |= weight.panel_shapes()

    def hidden(self, x: None, norm: Norm | None) -> None:
        """Gives rows, multiplies nothing."""
