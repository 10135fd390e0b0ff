"""A model file in memory: mapped, read-only, paged in as it is read."""

from __future__ import annotations

import mmap
from pathlib import Path

from noria.config.errors import ModelError


def map_file(path: Path) -> mmap.mmap:
    """The file's bytes. The mapping lives as long as anything refers to it. Raises ModelError."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # mmap refuses a length of 0
        raise ModelError(f"{path}: the file is empty") from error
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
