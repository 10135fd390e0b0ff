"""A model file that is read piece by piece.

It is not mapped into memory: where somebody shortens a mapped file, to fetch it anew, the next look at what is gone
ends the process, and nothing can be said. A read can tell.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import numpy as np

from noria.config.errors import ModelError


class ModelBytes:
    """size: bytes. The file stays open as long as anything refers to this."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError for a file that cannot be read or is empty."""
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)
            self.size, self._changed_ns = self._state()
            os.pread(self._descriptor, 1, 0)  # what a folder refuses
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        if not self.size:
            raise ModelError(f"{path}: the file is empty")

    def read(self, offset: int, num_bytes: int) -> np.ndarray:
        """Bytes within the size: [num_bytes] uint8, read-only and nobody else's.

        Raises ModelError where the file cannot be read any more or is not what was opened.
        """
        piece = np.empty(num_bytes, np.uint8)
        room, done = piece.data, 0
        try:
            while done < num_bytes:
                count = os.preadv(self._descriptor, [room[done:]], offset + done)
                if not count:
                    break
                done += count
            size, changed_ns = self._state()
        except OSError as error:
            raise ModelError(f"{self.path}: cannot be read: {error.strerror}") from error
        if (size, changed_ns, done) != (self.size, self._changed_ns, num_bytes):
            raise ModelError(
                f"{self.path}: changed while it was read: it had {self.size} bytes when it was opened and has {size} "
                f"now; start again when nothing writes to it"
            )
        piece.flags.writeable = False
        return piece

    def _state(self) -> tuple[int, int]:
        """(size, when the contents last changed)"""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns
