"""Where the processes of a server keep what they share: their sockets, and small files."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from noria.config.errors import ConfigError

_MAX_SOCKET_PATH = 107  # bytes; what Linux takes for a socket in the file system
_PREFIX = "noria-run-"
_LONGEST_NAME = 24  # of a socket in the directory, with its slash


@contextmanager
def run_directory() -> Iterator[str]:
    """A new directory for this user alone, gone afterwards. Raises ConfigError when there can be none.

    What servers left behind that were killed is swept away first.
    """
    try:
        _sweep()
        path, descriptor = _locked_directory()
    except OSError as error:
        raise ConfigError(
            f"there is nowhere to keep the sockets between the server's processes: {error}; "
            "set TMPDIR to a directory that can be written to"
        ) from error
    try:
        _check_length(path)
        yield path
    finally:
        os.close(descriptor)
        shutil.rmtree(path, ignore_errors=True)


def _locked_directory() -> tuple[str, int]:
    """A new one, and the descriptor by which it is locked: whoever may lock it too knows that nobody uses it.

    Clean-ups of temporary files, which take what is some days old, pass over a directory that is locked as well.
    """
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX)
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink and os.path.exists(path):
            return path, descriptor
        os.close(descriptor)  # another server took it for one left behind, before it was locked


def _sweep() -> None:
    """Remove the directories of this user's servers that no process has any more."""
    for entry in os.scandir(tempfile.gettempdir()):
        if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError):  # it has gone, or is not for us to touch
            if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                _remove_unused(entry.path)


def _remove_unused(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while a process of its server lives
        shutil.rmtree(path)
    finally:
        os.close(descriptor)


def _check_length(path: str) -> None:
    most = _MAX_SOCKET_PATH - _LONGEST_NAME
    num_bytes = len(os.fsencode(path))
    if num_bytes > most:
        raise ConfigError(
            f"the path {path}, for the sockets between the server's processes, has {num_bytes} bytes, and the system "
            f"takes {most}; set TMPDIR to a shorter one, such as /tmp"
        )
