"""One GGUF file: its metadata, and where its tensors are.

Layout: magic "GGUF", version (u32), number of tensors (u64), number of metadata entries (u64), the entries,
the tensor descriptions, padding up to the alignment, the tensors' bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noria.config.errors import ModelError
from noria.loaders.fields import Fields, shorten
from noria.loaders.gguf_cursor import Beyond, Cursor
from noria.loaders.gguf_types import TensorType, tensor_type
from noria.loaders.model_bytes import ModelBytes

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_FIRST_BYTES = 16 << 20  # more than nearly all headers have


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """shape: row-major, outermost first. offset: from the start of the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements // self.type.block_elements * self.type.block_bytes


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path
    data: ModelBytes
    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]


def read_gguf(path: Path) -> GgufFile:
    """Read and check the header, and no tensor. Raises ModelError."""
    data = ModelBytes(path)
    num_bytes = min(_FIRST_BYTES, data.size)
    while True:
        cursor = Cursor(data.read(0, num_bytes).tobytes(), str(path), data.size)
        try:
            return GgufFile(path, data, *_read_header(cursor))
        except Beyond as beyond:
            num_bytes = min(max(beyond.end, 2 * num_bytes), data.size)


def _read_header(cursor: Cursor) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """(metadata, tensors)"""
    _check_magic(cursor)
    num_tensors = cursor.u64("the number of tensors")
    num_entries = cursor.u64("the number of metadata entries")
    metadata = _read_metadata(cursor, num_entries)
    described = _read_descriptions(cursor, num_tensors)
    alignment = _alignment(metadata, cursor.source)
    return metadata, _place(described, cursor, alignment)


def _check_magic(cursor: Cursor) -> None:
    start = cursor.skip(4, "the magic")
    magic = cursor.data[start : start + 4]
    if magic != MAGIC:
        raise ModelError(f"{cursor.source}: not a GGUF file: it starts with {magic!r} instead of {MAGIC!r}")
    version = cursor.u32("the version")
    if version in _VERSIONS:
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
        raise ModelError(
            f"{cursor.source}: this GGUF file is big-endian; only little-endian ones are supported"
        )
    raise ModelError(f"{cursor.source}: GGUF version {version} is not supported; supported are 2 and 3")


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.string(f"the key of metadata entry {index + 1} of {count}")
        if key in metadata:
            raise ModelError(f"{cursor.source}: the metadata key {shorten(key)} appears twice")
        metadata[key] = cursor.value(f"the metadata value {shorten(key)}")
    return metadata


def _read_descriptions(cursor: Cursor, count: int) -> dict[str, StoredTensor]:
    """The tensors, with offsets still counted from the start of the tensors' bytes."""
    tensors: dict[str, StoredTensor] = {}
    for index in range(count):
        tensor = _read_description(cursor, f"{index + 1} of {count}")
        if tensor.name in tensors:
            raise ModelError(f"{cursor.source}: the tensor {shorten(tensor.name)} appears twice")
        tensors[tensor.name] = tensor
    return tensors


def _read_description(cursor: Cursor, place: str) -> StoredTensor:
    name = cursor.string(f"the name of tensor {place}")
    what = f"the description of tensor {shorten(name)}"
    num_dimensions = cursor.u32(what)
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ModelError(
            f"{cursor.source}: tensor {shorten(name)} must have 1 to {_MAX_DIMENSIONS} dimensions, "
            f"found {num_dimensions}"
        )
    # The file lists the innermost dimension first.
    shape = tuple(cursor.u64(what) for _ in range(num_dimensions))[::-1]
    kind = tensor_type(cursor.u32(what), shorten(name), cursor.source)
    offset = cursor.u64(what)
    if min(shape) < 1:
        raise ModelError(f"{cursor.source}: tensor {shorten(name)} is empty: its shape is {list(shape)}")
    if shape[-1] % kind.block_elements:
        raise ModelError(
            f"{cursor.source}: tensor {shorten(name)} has rows of {shape[-1]} elements, which {kind.name} "
            f"cannot hold: they must be a multiple of {kind.block_elements}"
        )
    return StoredTensor(name, kind, shape, offset)


def _alignment(metadata: dict[str, Any], source: str) -> int:
    fields = Fields(metadata, source)
    alignment = fields.integer("general.alignment", _DEFAULT_ALIGNMENT)
    if alignment & (alignment - 1):
        raise fields.fault("general.alignment", "a power of two")
    return alignment


def _place(described: dict[str, StoredTensor], cursor: Cursor, alignment: int) -> dict[str, StoredTensor]:
    """Turn offsets into positions in the file; no tensor may be misaligned, overlap or leave the file."""
    base = -(-cursor.position // alignment) * alignment
    tensors = {}
    for name, tensor in described.items():
        if tensor.offset % alignment:
            raise ModelError(
                f"{cursor.source}: tensor {shorten(name)} is misaligned: its offset {tensor.offset} "
                f"is no multiple of {alignment}"
            )
        tensors[name] = StoredTensor(name, tensor.type, tensor.shape, base + tensor.offset)
    end, before = base, ""
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise ModelError(f"{cursor.source}: tensors {before} and {shorten(tensor.name)} overlap")
        end, before = tensor.offset + tensor.num_bytes, shorten(tensor.name)
    if tensors and end > cursor.size:
        raise ModelError(
            f"{cursor.source}: truncated: tensor {before} ends at {end}, the file at {cursor.size}"
        )
    return tensors
