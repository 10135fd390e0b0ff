"""The ops of kernels.ops, recorded into a native plan. Buffers are the plan's numbers."""

from __future__ import annotations

import numpy as np

from noria.kernels.native import _native
from noria.kernels.native.packing import NativeLinear
from noria.kernels.ops import Activation, Attention, EmbeddingSum, Heads, Norm, QkvProjection, Reach


class RecordingOps:
    def __init__(self, plan: _native.Plan) -> None:
        self._plan = plan

    def embed(self, table: NativeLinear, beside: EmbeddingSum | None = None) -> int:
        if beside is None:
            return self._plan.embed(table.weight)
        added = _native.EmbeddingSum(beside.positions, beside.token_types, _norm(beside.norm))
        return self._plan.embed(table.weight, added)

    def norm_qkv(self, x: int, norm: Norm | None, projection: QkvProjection, layer: int) -> int:
        weights: tuple[_native.LinearWeight, ...] = projection.weight.weights
        rope: np.ndarray = projection.rope
        head_norms = [_optional_norm(one) for one in (projection.query_norm, projection.key_norm)]
        qkv = _native.Qkv(list(weights), _heads(projection.heads), rope, *head_norms)
        return self._plan.norm_qkv(x, _optional_norm(norm), qkv, layer)

    def attend(self, q: int, attention: Attention, layer: int) -> int:
        return self._plan.attend(q, _heads(attention.heads), attention.scale, _reach(attention), layer)

    def linear_add(self, inputs: int, weight: NativeLinear, x: int) -> None:
        self._plan.linear_add(inputs, weight.weight, x)

    def normalise(self, x: int, norm: Norm) -> None:
        self._plan.normalise(x, _norm(norm))

    def norm_glu(self, x: int, norm: Norm | None, weight: NativeLinear, activation: Activation) -> int:
        return self._plan.norm_glu(x, _optional_norm(norm), weight.weight, activation.value)

    def norm_activate(self, x: int, norm: Norm | None, weight: NativeLinear, activation: Activation) -> int:
        return self._plan.norm_activate(x, _optional_norm(norm), weight.weight, activation.value)

    def lm_head(self, x: int, norm: Norm, weight: NativeLinear) -> None:
        self._plan.lm_head(x, _norm(norm), weight.weight)

    def hidden(self, x: int, norm: Norm | None) -> None:
        self._plan.hidden(x, None if norm is None else _norm(norm))


def _norm(norm: Norm) -> _native.Norm:
    return _native.Norm(norm.gamma, norm.eps, norm.beta)


def _optional_norm(norm: Norm | None) -> _native.Norm | None:
    return None if norm is None else _norm(norm)


def _reach(attention: Attention) -> _native.Reach:
    """The window counts the token itself."""
    back = attention.window - 1 if attention.window else _native.Reach.ALL
    return _native.Reach(back, _native.Reach.ALL if attention.reach is Reach.WHOLE else 0)


def _heads(heads: Heads) -> _native.Heads:
    return _native.Heads(heads.num_heads, heads.num_kv_heads, heads.head_dim)
