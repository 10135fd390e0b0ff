"""A checkpoint's tensors by logical name: all accounted for before the first is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import ModelConfig
from noria.models.names import NameMap, name_map
from noria.models.registry import architecture, blamed
from noria.models.shapes import Shapes, is_kept_in_floats

Progress = Callable[[int, int], None]  # (bytes read, bytes to read), as stored
_NAMED_AT_MOST = 5
_NUM_SAMPLES, _SAMPLE_BYTES = 16, 256
# Of a matrix at once: what stays in the cache; rows that every thread has some of, and whole tiles of packed ones.
_PIECE_BYTES, _LEAST_ROWS, _TILE_ROWS = 8 << 20, 1024, 16


def rows_of_a_piece(row_bytes: int) -> int:
    return max(_LEAST_ROWS, _PIECE_BYTES // row_bytes // _TILE_ROWS * _TILE_ROWS)


class StoredTensor(Protocol):
    """What a file's header says of one tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def kind(self) -> str: ...

    @property
    def num_bytes(self) -> int: ...


class ModelFile(Protocol):
    """What this room needs of a checkpoint; `noria.loaders.checkpoint.Checkpoint` has it."""

    @property
    def format(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def config(self) -> ModelConfig: ...

    @property
    def tensors(self) -> Mapping[str, StoredTensor]: ...

    def read(self, name: str) -> np.ndarray: ...

    def read_raw(self, name: str, start: int = 0, end: int | None = None) -> np.ndarray: ...


class StoredModel:
    """A checkpoint whose every tensor is known to be used, tied or derived.

    config: the checkpoint's, with tie_word_embeddings as the file's contents settle it. Making one reads the two
    tables of a model that says they are tied and stores both, and nothing else.
    """

    def __init__(self, file: ModelFile, progress: Progress | None = None) -> None:
        """progress: called after each tensor with the bytes read so far and in all, as stored.

        Raises ModelError for tensors that are missing, unknown, of another shape or in contradiction.
        """
        self._file = file
        self._names = name_map(file.format, file.config, file.tensors)
        self._progress = progress
        self._done_bytes = 0
        self.config = _settled_config(file, self._names)
        with blamed(self.config):
            shapes = architecture(self.config).shapes(self.config)
        self._check(shapes)
        self._total_bytes = sum(file.tensors[self._names.file_name(name)].num_bytes for name in shapes)

    def matrix(self, name: str) -> StoredMatrix:
        """A parts.TensorReader's; reads nothing yet."""
        return StoredMatrix(self, name)

    def matrices(self) -> list[StoredMatrix]:
        """All that a backend may keep in another form, in the order of the architecture's shapes."""
        shapes = architecture(self.config).shapes(self.config)
        return [self.matrix(name) for name, shape in shapes.items() if not is_kept_in_floats(name, shape)]

    def vector(self, name: str) -> np.ndarray:
        return self.floats(name)

    def file_name(self, name: str) -> str:
        """What the file calls the tensor with the logical `name`."""
        return self._names.file_name(name)

    def where(self, name: str) -> str:
        """The tensor for a message: its file and its name there."""
        return f"{self._file.path}: tensor {self._names.file_name(name)}"

    def tensor(self, name: str) -> StoredTensor:
        return self._file.tensors[self._names.file_name(name)]

    def floats(self, name: str) -> np.ndarray:
        """The tensor in the ops' order, float32. Each is to be read once, in whichever form.

        Raises ModelError for one with numbers that are not finite: they would spoil every answer.
        """
        array = self._file.read(self._names.file_name(name))
        if not np.isfinite((array.min(), array.max())).all():  # NaN is both; no second array is made
            num_bad = np.count_nonzero(~np.isfinite(array))
            raise ModelError(
                f"{self.where(name)}: {num_bad} of its {array.size} numbers are not finite; "
                f"fetch or convert the file again"
            )
        self._done(name)
        return self._names.restore(name, array)

    def pieces(self, name: str) -> Iterator[np.ndarray]:
        """The matrix's bytes in the ops' order, some rows after the other: [n, bytes of a row] uint8, unchecked."""
        tensor, file_name = self.tensor(name), self._names.file_name(name)
        num_rows, row_bytes = tensor.shape[0], tensor.num_bytes // tensor.shape[0]
        # Rows that change their places are there all at once.
        step = rows_of_a_piece(row_bytes) if self._names.keeps_order(name) else num_rows
        for first in range(0, num_rows, step):
            raw = self._file.read_raw(file_name, first * row_bytes, min(first + step, num_rows) * row_bytes)
            yield self._names.restore(name, raw.reshape(-1, row_bytes))
        self._done(name)

    def fingerprint(self) -> str:
        """Tells these weights from others, by every tensor's header and pieces of what it holds, evenly spread.

        Enough to tell any training, merging or conversion from another; only a change made to lie between the pieces
        is not seen.
        """
        digest = hashlib.sha256()
        for name, tensor in self._file.tensors.items():
            digest.update(f"{name} {tensor.kind} {tuple(tensor.shape)}:".encode())
            apart = max(_SAMPLE_BYTES, tensor.num_bytes // _NUM_SAMPLES)
            size = _SAMPLE_BYTES if apart > _SAMPLE_BYTES else tensor.num_bytes  # pieces that touch are one
            for start in range(0, tensor.num_bytes, max(apart, size)):
                digest.update(self._file.read_raw(name, start, start + size).tobytes())
        return digest.hexdigest()

    def _done(self, name: str) -> None:
        self._done_bytes += self.tensor(name).num_bytes
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes)

    def _check(self, shapes: Shapes) -> None:
        file, expected = self._file, {self._names.file_name(name): shape for name, shape in shapes.items()}
        missing = [name for name in expected if name not in file.tensors]
        if missing:
            hint = "; its configuration says the output is not tied" if "head" in shapes else ""
            hint = hint if self._names.find("head") in missing else ""
            raise ModelError(f"{file.path}: {_listed('tensor', missing)} missing{hint}")
        for name, shape in expected.items():
            found = tuple(file.tensors[name].shape)
            _need_weights(file, name)
            if found != shape:
                raise ModelError(
                    f"{file.path}: tensor {name} has the shape {_shape(found)}; "
                    f"its configuration calls for {_shape(shape)}"
                )
        spare = {self._names.find("head")} if self.config.tie_word_embeddings else set()
        unknown = [
            n for n in file.tensors if n not in expected and n not in spare and not self._names.is_derived(n)
        ]
        if unknown:
            raise ModelError(
                f"{file.path}: {_listed('tensor', unknown)} not part of a {self.config.architecture} model as "
                f"configured; loading without would change its answers"
            )


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A kernels.ops.Matrix of a StoredModel."""

    model: StoredModel
    name: str

    @property
    def where(self) -> str:
        return self.model.where(self.name)

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, width = self.model.tensor(self.name).shape
        return num_rows, width

    @property
    def kind(self) -> str:
        return self.model.tensor(self.name).kind

    def floats(self) -> np.ndarray:
        return self.model.floats(self.name)

    def pieces(self) -> Iterator[np.ndarray]:
        return self.model.pieces(self.name)


def _settled_config(file: ModelFile, names: NameMap) -> ModelConfig:
    """Whether the output is tied, by configuration and contents together.

    A GGUF file has no setting for it: an output matrix that is there is meant. Elsewhere a configuration that
    says tied allows a stored copy of the embedding, but no other matrix.
    """
    head, embedding = names.find("head"), names.file_name("embedding")
    if not file.config.tie_word_embeddings or head is None or head not in file.tensors:
        return file.config
    if file.format == "gguf":
        return replace(file.config, tie_word_embeddings=False)
    if embedding not in file.tensors:
        return file.config
    for name in (embedding, head):
        _need_weights(file, name)
    if not _are_equal(file, embedding, head):
        raise ModelError(
            f"{file.path}: config.json says tie_word_embeddings, but the tensors {head} and {embedding} differ; "
            f"set tie_word_embeddings to false to use {head}, or remove that tensor"
        )
    return file.config


def _are_equal(file: ModelFile, name: str, other: str) -> bool:
    """Whether two tensors hold the same numbers. They are looked at piece by piece where they hold the same bytes."""
    one, two = file.tensors[name], file.tensors[other]
    if (tuple(one.shape), one.kind) == (tuple(two.shape), two.kind):
        starts = range(0, one.num_bytes, _PIECE_BYTES)
        spans = [(start, min(start + _PIECE_BYTES, one.num_bytes)) for start in starts]
        if all(np.array_equal(file.read_raw(name, *span), file.read_raw(other, *span)) for span in spans):
            return True
    return np.array_equal(file.read(name), file.read(other))


def _need_weights(file: ModelFile, name: str) -> None:
    if file.tensors[name].kind == "I64":
        raise ModelError(f"{file.path}: tensor {name} holds whole numbers (I64) where weights belong")


def _listed(noun: str, names: Sequence[str]) -> str:
    """ "tensor a is", "tensors a, b and 3 more are"."""
    shown = ", ".join(names[:_NAMED_AT_MOST])
    more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
    return f"{noun} {shown} is" if len(names) == 1 else f"{noun}s {shown}{more} are"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
