"""Norm, rotation and activation: everything that is no matrix product. All float32.

Only functions that give a number the same bits wherever it stands in its tensor: torch computes the odd numbers at
the end of a vector loop with other code in some functions (silu, sigmoid), and in none of those used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from noria.kernels.ops import Activation


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    """Over the last dimension."""
    mean = (x * x).sum(-1, keepdim=True) / x.shape[-1]
    return (x / torch.sqrt(mean + eps)).mul_(gamma)


def layer_norm(x: torch.Tensor, gamma: torch.Tensor, eps: float, beta: torch.Tensor) -> torch.Tensor:
    """Over the last dimension."""
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return rms_norm(centred, gamma, eps).add_(beta)


def rotate_(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """In place. heads: [rows, n, D]; cos, sin: [rows, 1, rotary_dim / 2]; dimension i goes with i + half."""
    half = cos.shape[-1]
    low, high = heads[..., :half], heads[..., half : 2 * half]
    turned_low = low * cos - high * sin
    turned_high = high * cos + low * sin
    low.copy_(turned_low)
    high.copy_(turned_high)


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / torch.exp(-x).add_(1.0)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    inner = x * x * x * 0.044715 + x
    return torch.tanh(inner * math.sqrt(2.0 / math.pi)).add_(1.0).mul_(x * 0.5)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.erf(x * math.sqrt(0.5)).add_(1.0).mul_(x * 0.5)


_ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    Activation.SILU: _silu,
    Activation.GELU_TANH: _gelu_tanh,
    Activation.GELU: _gelu,
    Activation.RELU: torch.relu,
}


def activated(x: torch.Tensor, activation: Activation) -> torch.Tensor:
    """A fresh tensor."""
    return _ACTIVATIONS[activation](x)


def gated(gate_up: torch.Tensor, activation: Activation) -> torch.Tensor:
    """[rows, 2 * F], gate then up -> activation(gate) * up."""
    gate, up = gate_up.chunk(2, -1)
    return activated(gate, activation).mul_(up)
