"""Weights as the native library packs them: quantised tensors as they are stored, others in the serving dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noria.kernels.native import _native
from noria.kernels.ops import Matrix

QUANTISED = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """Packed weights, one below the other; more than one where tensors of different formats stand together."""

    weights: tuple[_native.LinearWeight, ...]

    @property
    def weight(self) -> _native.LinearWeight:
        (weight,) = self.weights
        return weight


class NativePacker:
    """dtype: float32 | bfloat16, of what is not quantised."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype

    def pack_linear(
        self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None
    ) -> NativeLinear:
        kinds = [self._kind(part) for part in parts]
        if len(set(kinds)) == 1:
            return NativeLinear((self._pack(kinds[0], parts, bias),))
        if not QUANTISED.issuperset(kinds):
            return NativeLinear((self._pack(self._dtype, parts, bias),))
        ends = np.cumsum([part.shape[0] for part in parts])[:-1]
        biases = [None] * len(parts) if bias is None else np.split(bias, ends)
        packed = [self._pack(*one) for one in zip(kinds, ([part] for part in parts), biases, strict=True)]
        return NativeLinear(tuple(packed))

    def pack_glu(
        self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None
    ) -> NativeLinear:
        kinds = {self._kind(part) for part in parts}
        kind = kinds.pop() if len(kinds) == 1 else self._dtype
        return NativeLinear((self._pack(kind, parts, bias, is_glu=True),))

    def pack_embedding(self, table: Matrix) -> NativeLinear:
        return self.pack_linear(table.shape, [table], None)

    def pack_vector(self, vector: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(vector, np.float32)

    def pack_rope(self, table: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(table, np.float32)

    def _kind(self, part: Matrix) -> str:
        return part.kind if part.kind in QUANTISED else self._dtype

    def _pack(
        self, kind: str, parts: Sequence[Matrix], bias: np.ndarray | None, is_glu: bool = False
    ) -> _native.LinearWeight:
        """kind: a quantised type, then of all parts, or a dtype."""
        make = _native.LinearWeight.of_blocks if kind in QUANTISED else _native.LinearWeight.of_floats
        num_rows, width = sum(part.shape[0] for part in parts), parts[0].shape[1]
        weight = make(kind, num_rows, width, glu=is_glu, bias=bias is not None)
        first = 0
        for part in parts:
            if kind in QUANTISED:
                weight.put_blocks(first, kind, np.ascontiguousarray(part.stored()))
            else:
                weight.put_floats(first, np.ascontiguousarray(part.floats(), np.float32))
            first += part.shape[0]
        if bias is not None:
            weight.put_bias(np.ascontiguousarray(bias, np.float32))
        return weight
