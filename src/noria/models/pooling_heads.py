"""What is made of hidden states beside logits: small layers in numpy, for a state at a time.

A state's result never depends on what is computed beside it: sums run in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from noria.config.pooling import Finish, Head


def _as_is(x: np.ndarray) -> np.ndarray:
    return x


@dataclass(frozen=True, slots=True)
class Dense:
    """y = activation(W x + bias). weight: [n, H]; bias: [n] or None; both float64."""

    weight: np.ndarray
    bias: np.ndarray | None = None
    activation: Callable[[np.ndarray], np.ndarray] = _as_is

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """[..., H] -> [..., n]"""
        # Not by a matrix product: libraries choose their order of summation by shape.
        made = np.einsum("...h,nh->...n", states, self.weight)
        return self.activation(made if self.bias is None else made + self.bias)


@dataclass(frozen=True)
class PoolingHeads:
    """The layers of each head, in order. Head.STATE has none, unless the model says so."""

    layers: Mapping[Head, tuple[Dense, ...]] = field(default_factory=dict)

    def apply(self, head: Head, states: np.ndarray) -> np.ndarray:
        """[..., H] -> [..., n], float64."""
        made = states.astype(np.float64)
        for layer in self.layers.get(head, ()):
            made = layer(made)
        return made


def finished(numbers: np.ndarray, finish: Finish) -> np.ndarray:
    """[..., n] -> [..., n], along the last dimension."""
    return _FINISHES[finish](numbers)


def _normalised(x: np.ndarray) -> np.ndarray:
    length = np.sqrt(np.square(x).sum(-1, keepdims=True))
    return x / np.maximum(length, 1e-12)


def _softmax(x: np.ndarray) -> np.ndarray:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


_FINISHES: Mapping[Finish, Callable[[np.ndarray], np.ndarray]] = {
    Finish.NONE: _as_is,
    Finish.NORMALIZE: _normalised,
    Finish.SOFTMAX: _softmax,
    Finish.SIGMOID: _sigmoid,
}
