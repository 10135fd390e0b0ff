"""Linear layers by row pieces of safe sizes, over panels of the weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from noria.kernels.torch_ops.products import multiply
from noria.kernels.torch_ops.scratch import Scratch

PANEL_ROWS = 2048  # of a weight, taken at once


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """matrix: [N, K] in the serving dtype. bias: [N] float32."""

    matrix: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def num_outputs(self) -> int:
        return self.matrix.shape[0]

    def panel_shapes(self) -> set[tuple[int, int]]:
        return {tuple(panel.shape) for panel in self.matrix.split(PANEL_ROWS)}


def linear(
    x: torch.Tensor, weight: LinearWeight, pieces: tuple[int, ...], out: torch.Tensor, scratch: Scratch
) -> None:
    """x: [M, K] float32, M the sum of pieces. out: [M, N] float32.

    A weight stored in 16 bits is widened panel by panel: products and sums are float32 in every dtype.
    """
    left = 0
    for panel in _widened(weight.matrix, scratch):
        right, top = left + len(panel), 0
        for count in pieces:
            multiply(x[top : top + count], panel, out[top : top + count, left:right])
            top += count
        left = right
    if weight.bias is not None:
        out.add_(weight.bias)


def _widened(matrix: torch.Tensor, scratch: Scratch) -> Iterator[torch.Tensor]:
    """The panels in float32; each is valid until the next is taken."""
    for panel in matrix.split(PANEL_ROWS):
        yield panel if panel.dtype == torch.float32 else scratch.take("panel", *panel.shape).copy_(panel)
