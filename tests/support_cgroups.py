"""A control group with a limit of memory, where this system lets one be made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Group | None]:
    """A group of its own, below that of this process; None where none can be made."""
    made = None
    for root, controller, limit, peak in (
        (_V1, "memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        (_V2, "", "memory.max", "memory.peak"),
    ):
        home = root / _own_group(controller).lstrip("/")
        path = home / f"noria-test-{os.getpid()}"
        try:
            path.mkdir()
            (path / limit).write_text(str(limit_bytes))
            made = Group(path, home, peak)
            break
        except OSError:
            with suppress(OSError):
                path.rmdir()
    try:
        yield made
    finally:
        if made is not None:
            made.path.rmdir()


def can_limit_memory() -> bool:
    with memory_group(2**30) as group:
        return group is not None


def _own_group(controller: str) -> str:
    """Of this process: of a controller of version 1, or of version 2 for none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controller in controllers.split(","):
            return group
    return "/"


def _move(path: Path) -> None:
    (path / "cgroup.procs").write_text(str(os.getpid()))
