"""Memory that the engine shares with the grammar process: the one asks about rows of masks, the other fills them."""

from __future__ import annotations

import io
import mmap
import os
import tempfile

_MIN_ROWS = 64


def open_memory() -> io.FileIO:
    """Memory without a name, which ends with its last holder. Empty at first.

    Left to be closed with its last reference: a descriptor that was closed meanwhile may be another file's.
    """
    if hasattr(os, "memfd_create"):
        return io.FileIO(os.memfd_create("noria-masks"), "r+")
    with tempfile.TemporaryFile(buffering=0) as file:
        return io.FileIO(os.dup(file.fileno()), "r+")


class MaskMemory:
    """One side's view. Only the engine makes it larger, and only between questions."""

    def __init__(self, file: io.FileIO, row_bytes: int) -> None:
        self._file = file
        self._row_bytes = row_bytes
        self._mapped: mmap.mmap | None = None

    def grow(self, num_rows: int) -> None:
        """Make room for so many rows. Raises OSError where there is no memory for them."""
        if os.fstat(self._file.fileno()).st_size < num_rows * self._row_bytes:
            self._file.truncate(max(2 * num_rows, _MIN_ROWS) * self._row_bytes)

    def rows(self, num_rows: int) -> mmap.mmap:
        """At least so many, for which there is room; views of what was given earlier stay as they are."""
        if self._mapped is None or len(self._mapped) < num_rows * self._row_bytes:
            self._mapped = mmap.mmap(self._file.fileno(), 0)
        return self._mapped
