"""A control group with a limit of memory, where this system lets one be made."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support_processes import until

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Group:
    """home: the group that this process is of otherwise. peak: the file that tells the most that was used."""

    path: Path
    home: Path
    peak: str

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This process is in it, and so is what it starts."""
        _move(self.path)
        try:
            yield
        finally:
            _move(self.home)

    @property
    def peak_bytes(self) -> int:
        return int((self.path / self.peak).read_text())


def can_limit_memory() -> bool:
    try:
        with memory_group(2**30) as group, group.entered():
            return group.peak_bytes >= 0
    except OSError:
        return False


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Group]:
    """A group of its own, below that of this process. Raises OSError where none can be made.

    What was started in it may still be ending: it is waited for.
    """
    group = _made(limit_bytes)
    try:
        yield group
    finally:
        until(lambda: _is_removed(group.path))


def _made(limit_bytes: int) -> Group:
    is_v1 = (_V1 / "memory.limit_in_bytes").exists()
    root = _V1 if is_v1 else _V2
    home = root / _own_group("memory" if is_v1 else "").lstrip("/")
    path = home / f"noria-test-{os.getpid()}"
    path.mkdir()
    try:
        (path / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(limit_bytes))
    except OSError:
        with suppress(OSError):
            path.rmdir()
        raise
    return Group(path, home, "memory.max_usage_in_bytes" if is_v1 else "memory.peak")


def _is_removed(path: Path) -> bool:
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _own_group(controller: str) -> str:
    """Of this process: of a controller of version 1, or of version 2 for none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return group
    return "/"


def _move(path: Path) -> None:
    (path / "cgroup.procs").write_text(str(os.getpid()))
