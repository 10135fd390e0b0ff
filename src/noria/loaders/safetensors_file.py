"""One safetensors file: length of the header (u64, little-endian), the header (JSON), the tensors' bytes.

The header maps each tensor's name to its dtype, shape and data_offsets [begin, end) from the end of the
header; together the tensors fill the rest of the file without a hole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noria.config.errors import ModelError
from noria.loaders.fields import shorten
from noria.loaders.json_file import decode, parse_unique_object
from noria.loaders.model_bytes import ModelBytes

ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8}  # I64: of indices that some files hold, no weights
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_MAX_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """shape: row-major. offset: from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    path: Path
    data: ModelBytes
    tensors: dict[str, StoredTensor]


def read_safetensors(path: Path) -> SafetensorsFile:
    """Read and check the header, and no tensor. Raises ModelError."""
    data = ModelBytes(path)
    base = _header_end(data, path)
    source = f"{path}: header"
    header = parse_unique_object(decode(data.read(8, base - 8).tobytes(), source), source)
    header.pop("__metadata__", None)
    tensors = {name: _tensor(name, entry, base, path) for name, entry in header.items()}
    _check_cover(tensors, base, data.size, path)
    return SafetensorsFile(path, data, tensors)


def _header_end(data: ModelBytes, path: Path) -> int:
    if data.size < 8:
        raise ModelError(
            f"{path}: truncated: a safetensors file has at least 8 bytes, this one has {data.size}"
        )
    length = int.from_bytes(data.read(0, 8).tobytes(), "little")
    if length > _MAX_HEADER_BYTES:
        raise ModelError(
            f"{path}: not a safetensors file, or damaged: its header claims {length} bytes, "
            f"more than the format's limit of {_MAX_HEADER_BYTES}"
        )
    if length > data.size - 8:
        raise ModelError(f"{path}: truncated: the header needs {length} bytes, the file has {data.size - 8}")
    return 8 + length


def _tensor(name: str, entry: Any, base: int, path: Path) -> StoredTensor:
    what = f"{path}: tensor {shorten(name)}"
    if not isinstance(entry, dict):
        raise ModelError(f"{what} must be described by an object, found {shorten(entry)}")
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or dtype not in ELEMENT_BYTES:
        raise ModelError(
            f"{what} has the dtype {shorten(dtype)}, which is not supported; "
            f"supported are {', '.join(ELEMENT_BYTES)}"
        )
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not _are_sizes(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ModelError(
            f"{what} must have a shape of at most {_MAX_DIMENSIONS} sizes, found {shorten(shape)}"
        )
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ModelError(f"{what} must have data_offsets [begin, end], found {shorten(offsets)}")
    if 0 in shape:
        raise ModelError(f"{what} is empty: its shape is {shape}")
    num_bytes = math.prod(shape) * ELEMENT_BYTES[dtype]
    if offsets[1] - offsets[0] != num_bytes:
        raise ModelError(
            f"{what} of shape {shape} and dtype {dtype} needs {num_bytes} bytes, "
            f"its data_offsets {offsets} give {offsets[1] - offsets[0]}"
        )
    return StoredTensor(name, dtype, tuple(shape), base + offsets[0], num_bytes)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 for value in values
    )


def _check_cover(tensors: dict[str, StoredTensor], base: int, size: int, path: Path) -> None:
    end = base
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset != end:
            fault = "overlaps another one" if tensor.offset < end else "is not next to another one"
            raise ModelError(f"{path}: tensor {shorten(tensor.name)} {fault} (at {tensor.offset}, not {end})")
        end = tensor.offset + tensor.num_bytes
    if end > size:
        raise ModelError(f"{path}: truncated: the tensors end at {end}, the file at {size}")
    if end < size:
        raise ModelError(f"{path}: {size - end} bytes after the last tensor belong to none")
