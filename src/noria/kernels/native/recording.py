"""The ops of kernels.ops, recorded into a native plan. Buffers are the plan's numbers."""

from __future__ import annotations

import numpy as np

from noria.kernels.native import _native
from noria.kernels.native.packing import NativeLinear
from noria.kernels.ops import Activation, Attention, Heads, Norm, QkvProjection


class RecordingOps:
    def __init__(self, plan: _native.Plan) -> None:
        self._plan = plan

    def embed(self, table: NativeLinear) -> int:
        return self._plan.embed(table.weight)

    def norm_qkv(self, x: int, norm: Norm, projection: QkvProjection, layer: int) -> int:
        weights: tuple[_native.LinearWeight, ...] = projection.weight.weights
        rope: np.ndarray = projection.rope
        head_norms = [
            None if one is None else _norm(one) for one in (projection.query_norm, projection.key_norm)
        ]
        qkv = _native.Qkv(list(weights), _heads(projection.heads), rope, *head_norms)
        return self._plan.norm_qkv(x, _norm(norm), qkv, layer)

    def attend(self, q: int, attention: Attention, layer: int) -> int:
        return self._plan.attend(q, _heads(attention.heads), attention.scale, attention.window, layer)

    def linear_add(self, inputs: int, weight: NativeLinear, x: int) -> None:
        self._plan.linear_add(inputs, weight.weight, x)

    def norm_glu(self, x: int, norm: Norm, weight: NativeLinear, activation: Activation) -> int:
        return self._plan.norm_glu(x, _norm(norm), weight.weight, activation.value)

    def lm_head(self, x: int, norm: Norm, weight: NativeLinear) -> None:
        self._plan.lm_head(x, _norm(norm), weight.weight)

    def hidden(self, x: int, norm: Norm | None) -> None:
        self._plan.hidden(x, None if norm is None else _norm(norm))


def _norm(norm: Norm) -> _native.Norm:
    return _native.Norm(norm.gamma, norm.eps)


def _heads(heads: Heads) -> _native.Heads:
    return _native.Heads(heads.num_heads, heads.num_kv_heads, heads.head_dim)
