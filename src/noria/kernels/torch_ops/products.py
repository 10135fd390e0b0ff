"""The three matrix products that everything is made of. All operands float32."""

from __future__ import annotations

import torch

CHUNK = 256  # tokens of KV that attention takes at once, counted from the start of a sequence


def multiply(x: torch.Tensor, matrix: torch.Tensor, out: torch.Tensor) -> None:
    """out [M, N] = x [M, K] matrix^T; matrix: [N, K]."""
    torch.mm(x, matrix.t(), out=out)


def scores(queries: torch.Tensor, keys: torch.Tensor, out: torch.Tensor) -> None:
    """[P, M, D] x [P, CHUNK, D] -> out [P, M, CHUNK]"""
    torch.bmm(queries, keys.transpose(1, 2), out=out)


def weighted(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """[P, M, CHUNK] x [P, CHUNK, D] -> [P, M, D]"""
    return torch.bmm(weights, values)
