"""Linear layers by row pieces of safe sizes, over panels of the weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from noria.kernels.torch_ops.products import multiply

PANEL_ROWS = 2048  # of a weight, taken at once


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """matrix: [N, K] in the serving dtype. bias: [N] float32."""

    matrix: torch.Tensor
    bias: torch.Tensor | None = None

    def panel_shapes(self) -> set[tuple[int, int]]:
        return {tuple(panel.shape) for panel in self.matrix.split(PANEL_ROWS)}


def linear(x: torch.Tensor, weight: LinearWeight, pieces: tuple[int, ...]) -> torch.Tensor:
    """x: [M, K] float32, M the sum of pieces -> [M, N] float32.

    A weight stored in 16 bits is widened panel by panel: products and sums are float32 in every dtype.
    """
    out = torch.empty(x.shape[0], weight.matrix.shape[0], device=x.device)
    left = 0
    for panel in _widened(weight.matrix):
        right, top = left + len(panel), 0
        for count in pieces:
            multiply(x[top : top + count], panel, out[top : top + count, left:right])
            top += count
        left = right
    return out if weight.bias is None else out.add_(weight.bias)


def _widened(matrix: torch.Tensor) -> Iterator[torch.Tensor]:
    """The panels in float32; each is valid until the next is taken."""
    panels = matrix.split(PANEL_ROWS)
    if matrix.dtype == torch.float32:
        yield from panels
        return
    room = torch.empty(panels[0].shape, device=matrix.device)
    for panel in panels:
        yield room[: len(panel)].copy_(panel)
