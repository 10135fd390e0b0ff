"""Weights as the native library packs them: each matrix in the form that `formats` decides on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from noria.config.errors import ModelError
from noria.kernels.native import _native
from noria.kernels.native.formats import QUANTISED, Formats
from noria.kernels.ops import Matrix, MatrixRole

_ROUNDED = ("w8", "w4")
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """Packed weights, one below the other; more than one where tensors of different forms stand together."""

    weights: tuple[_native.LinearWeight, ...]

    @property
    def weight(self) -> _native.LinearWeight:
        (weight,) = self.weights
        return weight


class NativePacker:
    """pool: the threads that round numbers. Raises ModelError for those that a form cannot hold."""

    def __init__(self, formats: Formats, pool: _native.Pool) -> None:
        self._formats = formats
        self._pool = pool

    def pack_linear(
        self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None
    ) -> NativeLinear:
        forms = self._forms(parts)
        if len(set(forms)) == 1:
            return NativeLinear((self._pack(forms[0], parts, bias),))
        if len({is_quantised(form) for form in forms}) != 1:
            # They take the same rows of activations, which are either quantised or not.
            return NativeLinear((self._pack(self._formats.dtype, parts, bias),))
        ends = np.cumsum([part.shape[0] for part in parts])[:-1]
        biases = [None] * len(parts) if bias is None else np.split(bias, ends)
        packed = [self._pack(*one) for one in zip(forms, ([part] for part in parts), biases, strict=True)]
        return NativeLinear(tuple(packed))

    def pack_glu(
        self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None
    ) -> NativeLinear:
        forms = set(self._forms(parts))
        form = forms.pop() if len(forms) == 1 else self._formats.dtype
        return NativeLinear((self._pack(form, parts, bias, is_glu=True),))

    def pack_vocabulary(self, table: Matrix) -> NativeLinear:
        form = self._formats.of(table.kind, table.shape[1], MatrixRole.VOCABULARY)
        return NativeLinear((self._pack(form, [table], None),))

    def pack_vector(self, vector: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(vector, np.float32)

    def pack_table(self, table: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(table, np.float32)

    def _forms(self, parts: Sequence[Matrix]) -> list[str]:
        return [self._formats.of(part.kind, part.shape[1], MatrixRole.INNER) for part in parts]

    def _pack(
        self, form: str, parts: Sequence[Matrix], bias: np.ndarray | None, is_glu: bool = False
    ) -> _native.LinearWeight:
        """form: a quantised type, then of all parts, or what the parts are rounded to."""
        num_rows, width = sum(part.shape[0] for part in parts), parts[0].shape[1]
        weight = _maker(form)(form, num_rows, width, glu=is_glu, bias=bias is not None)
        first = 0
        for part in parts:
            self._put(weight, first, form, part)
            first += part.shape[0]
        if bias is not None:
            weight.put_bias(np.ascontiguousarray(bias, np.float32))
        return weight

    def _put(self, weight: _native.LinearWeight, first: int, form: str, part: Matrix) -> None:
        place = 0
        for kind, rows in _pieces(form, part):
            try:
                self._put_rows(weight, first + place, kind, rows)
            except ValueError as error:  # a number that is not finite, or too large for the form
                where = f"{part.where}, of its rows from {place} on" if place else part.where
                raise ModelError(f"{where}: {error}") from None
            place += len(rows)

    def _put_rows(self, weight: _native.LinearWeight, first: int, kind: str, rows: np.ndarray) -> None:
        """rows: [n, bytes of a row] of a quantised type or of floating point numbers."""
        if kind in QUANTISED:
            weight.put_blocks(first, kind, np.ascontiguousarray(rows))
        else:
            weight.put_stored(self._pool, first, kind, np.ascontiguousarray(rows))


def _pieces(form: str, part: Matrix) -> Iterator[tuple[str, np.ndarray]]:
    """(kind, rows from the top): as they are stored where the form takes them so, else as float32."""
    if form in QUANTISED or part.kind in _FLOATS:
        for rows in part.pieces():
            yield part.kind, rows
    else:
        yield "F32", np.ascontiguousarray(part.floats(), np.float32).view(np.uint8)


def is_quantised(form: str) -> bool:
    """Whether weights of this form meet activations rounded to integers."""
    return form in QUANTISED or form in _ROUNDED


def _maker(form: str) -> _native.LinearWeight:
    if form in QUANTISED:
        return _native.LinearWeight.of_blocks
    return _native.LinearWeight.of_rounded if form in _ROUNDED else _native.LinearWeight.of_floats
