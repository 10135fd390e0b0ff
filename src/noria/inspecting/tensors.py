"""What a model is made of: each tensor's shape, how it is stored, and what it takes in memory once it is packed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from noria.kernels.native.formats import Formats
from noria.kernels.native.sizes import matrix_sizes
from noria.kernels.ops import MatrixRole
from noria.models.registry import architecture
from noria.models.shapes import is_kept_in_floats
from noria.models.stored import StoredModel

_FLOAT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class TensorRow:
    """name: within Noria. stored_as, packed_as: kinds of numbers. shape: row-major, [out, in] of a matrix."""

    name: str
    file_name: str
    shape: tuple[int, ...]
    stored_as: str
    stored_bytes: int
    packed_as: str
    packed_bytes: int


def tensor_rows(stored: StoredModel, backend: str, formats: Formats) -> list[TensorRow]:
    """All, in the order of the architecture's shapes; a tied table once."""
    return [
        _row(stored, name, shape, backend, formats)
        for name, shape in architecture(stored.config).shapes(stored.config).items()
    ]


def _row(stored: StoredModel, name: str, shape: tuple[int, ...], backend: str, formats: Formats) -> TensorRow:
    tensor = stored.tensor(name)
    packed_as, packed_bytes = _packed(name, shape, tensor.kind, backend, formats)
    file_name = stored.file_name(name)
    return TensorRow(name, file_name, shape, tensor.kind, tensor.num_bytes, packed_as, packed_bytes)


def _packed(name: str, shape: tuple[int, ...], kind: str, backend: str, formats: Formats) -> tuple[str, int]:
    """The form and its bytes."""
    if is_kept_in_floats(name, shape):
        return "float32", math.prod(shape) * _FLOAT_BYTES["float32"]
    if backend != "native":
        return formats.dtype, math.prod(shape) * _FLOAT_BYTES[formats.dtype]
    num_rows, width = shape
    role = MatrixRole.VOCABULARY if name in ("embedding", "head") else MatrixRole.INNER
    return formats.of(kind, width, role), matrix_sizes(formats)(kind, (num_rows, width), role)
