"""Where the processes of a server keep what they share: their sockets, and small files."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from noria.config.errors import ConfigError

_MAX_SOCKET_PATH = 107  # bytes; what Linux takes for a socket in the file system
_LONGEST_NAME = 24  # of a socket in the directory, with its slash


@contextmanager
def run_directory() -> Iterator[str]:
    """A new directory for this user alone, gone afterwards. Raises ConfigError when there can be none."""
    try:
        path = tempfile.mkdtemp(prefix="noria-")
    except OSError as error:
        raise ConfigError(
            f"there is nowhere to keep the sockets between the server's processes: {error}; "
            "set TMPDIR to a directory that can be written to"
        ) from error
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Clean-ups of temporary files, which take what is some days old, pass over a directory that is locked.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _check_length(path)
        yield path
    finally:
        os.close(descriptor)
        shutil.rmtree(path, ignore_errors=True)


def _check_length(path: str) -> None:
    most = _MAX_SOCKET_PATH - _LONGEST_NAME
    num_bytes = len(os.fsencode(path))
    if num_bytes > most:
        raise ConfigError(
            f"the path {path}, for the sockets between the server's processes, has {num_bytes} bytes, and the system "
            f"takes {most}; set TMPDIR to a shorter one, such as /tmp"
        )
