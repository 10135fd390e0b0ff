"""Which tensors an op uses: noted while weights are read and packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from noria.kernels.observing import OpCall
from noria.kernels.ops import Matrix, Packer, Weight
from noria.models.parts import TensorReader

Thing = TypeVar("Thing")


class Namebook:
    """A models.parts.TensorReader and a kernels.ops.Packer in one, that knows what went into which handle."""

    def __init__(self, read: TensorReader, packer: Packer) -> None:
        self._read = read
        self._packer = packer
        self._names: dict[int, tuple[str, ...]] = {}  # by identity: of matrices and vectors, then of handles
        self._kept: list[object] = []  # or identities would be used again

    def matrix(self, name: str) -> Matrix:
        return self._noted(self._read.matrix(name), (name,))

    def vector(self, name: str) -> np.ndarray:
        return self._noted(self._read.vector(name), (name,))

    def pack_linear(self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None) -> Weight:
        return self._noted(self._packer.pack_linear(shape, parts, bias), self._of(parts))

    def pack_glu(self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None) -> Weight:
        return self._noted(self._packer.pack_glu(shape, parts, bias), self._of(parts))

    def pack_vocabulary(self, table: Matrix) -> Weight:
        return self._noted(self._packer.pack_vocabulary(table), self._of([table]))

    def pack_vector(self, vector: np.ndarray) -> Weight:
        return self._noted(self._packer.pack_vector(vector), self._of([vector]))

    def pack_table(self, table: np.ndarray) -> Weight:
        return self._noted(self._packer.pack_table(table), self._of([table]))

    def names_of(self, call: OpCall) -> tuple[str, ...]:
        """The tensors that an op uses, by logical name, a norm's first."""
        return self._of(call.handles)

    def _of(self, things: Sequence[object]) -> tuple[str, ...]:
        return tuple(name for thing in things for name in self._names.get(id(thing), ()))

    def _noted(self, thing: Thing, names: tuple[str, ...]) -> Thing:
        self._names[id(thing)] = names
        self._kept.append(thing)
        return thing


def label(call: OpCall, names: Sequence[str]) -> str:
    """`layers.3 attend`, `layers.3 linear_add (o)`: where an op stands, in words."""
    parts = [_part(name) for name in names if not name.endswith("norm")] or [_part(name) for name in names]
    places = [name.rsplit(".", 1)[0] for name in names if name.startswith("layers.")]
    layer = call.layer
    if layer is None and places:
        layer = int(places[0].split(".")[1])
    where = "" if layer is None else f"layers.{layer} "
    return f"{where}{call.name}" + (f" ({', '.join(parts)})" if parts else "")


def _part(name: str) -> str:
    """`q` of layers.3.q.weight."""
    return name.split(".")[2] if name.startswith("layers.") else name
