"""Limits that control groups put on this process, version 1 and 2, at any depth.

A limit holds for a group and everything below it, so the tightest one between the process's own group and the
root is the one that counts. Inside a container the files show the container's group as the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """limit_bytes: may never be exceeded. free_bytes: what of it is not in use now. source: for people."""

    limit_bytes: int
    free_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class CpuLimit:
    num_cpus: float
    source: str


@dataclass(frozen=True, slots=True)
class _MemoryFiles:
    """limits: files with a limit each. reclaimable: the line of memory.stat that counts droppable page cache."""

    limits: tuple[str, ...]
    usage: str
    reclaimable: str


# Above memory.high a process is not killed but held up at every allocation: as good as a limit.
_V2 = _MemoryFiles(("memory.max", "memory.high"), "memory.current", "inactive_file")
_V1 = _MemoryFiles(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")

_ESCAPED = re.compile(r"\\([0-7]{3})")


def memory_limits(root: Path) -> list[MemoryLimit]:
    """Every memory limit on this process. root: where /proc and /sys are looked for."""
    limits: list[MemoryLimit] = []
    for folder in _groups(root, None):
        limits += _memory_limits_in(folder, _V2, root)
    for folder in _groups(root, "memory"):
        limits += _memory_limits_in(folder, _V1, root)
    return limits


def cpu_limits(root: Path) -> list[CpuLimit]:
    """Every quota of processor time on this process, in CPUs."""
    limits: list[CpuLimit] = []
    for folder in _groups(root, None):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        limits += _cpu_limit(quota, period, folder / "cpu.max", root)
    for folder in _groups(root, "cpu"):
        path = folder / "cpu.cfs_quota_us"
        limits += _cpu_limit(_read(path), _read(folder / "cpu.cfs_period_us"), path, root)
    return limits


def _memory_limits_in(folder: Path, files: _MemoryFiles, root: Path) -> Iterator[MemoryLimit]:
    for name in files.limits:
        limit = _number(_read(folder / name))
        if limit is not None:
            used = _number(_read(folder / files.usage)) or 0
            used -= min(used, _statistic(_read(folder / "memory.stat"), files.reclaimable))
            yield MemoryLimit(limit, max(limit - used, 0), _as_seen(folder / name, root))


def _cpu_limit(quota: str, period: str, path: Path, root: Path) -> Iterator[CpuLimit]:
    quota_us, period_us = _number(quota), _number(period)
    if quota_us and period_us:  # -1 and "max" are no limit, and no number here
        yield CpuLimit(quota_us / period_us, _as_seen(path, root))


def _groups(root: Path, controller: str | None) -> Iterator[Path]:
    """Folders of the process's groups, innermost first. controller: of version 1; None is version 2."""
    group = _own_group(root, controller)
    mount = _mount(root, controller, group)
    if group is None or mount is None:
        return
    mount_root, mount_point = mount
    inside = _relative(group, mount_root)
    folder = mount_point / inside
    while True:
        yield folder
        if folder == mount_point:
            return
        folder = folder.parent


def _own_group(root: Path, controller: str | None) -> str | None:
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        matches = hierarchy == "0" if controller is None else controller in controllers.split(",")
        if matches:
            return path
    return None


def _mount(root: Path, controller: str | None, group: str | None) -> tuple[str, Path] | None:
    """(group that the mount shows as its root, mount point); the mount that shows most of `group`'s path."""
    found = []
    for line in _read(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or len(right) < 3:
            continue
        if controller is None:
            matches = right[0] == "cgroup2"
        else:
            matches = right[0] == "cgroup" and controller in right[2].split(",")
        if matches:
            found.append((_unescape(left[3]), root / _unescape(left[4]).lstrip("/")))
    shown = [mount for mount in found if group is not None and _is_below(group, mount[0])]
    # A group outside every mount's view: the mounts' own roots still bind, whatever lies in between.
    return max(shown or found, key=lambda mount: len(mount[0]), default=None)


def _is_below(group: str, ancestor: str) -> bool:
    return ".." not in group.split("/") and (group + "/").startswith(ancestor.rstrip("/") + "/")


def _relative(group: str, mount_root: str) -> str:
    return group[len(mount_root.rstrip("/")) :].strip("/") if _is_below(group, mount_root) else ""


def _unescape(text: str) -> str:
    """mountinfo writes blanks as \\040."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # no such controller here, or not ours to see: no limit that we could know of
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _statistic(text: str, name: str) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value) or 0
    return 0


def _as_seen(path: Path, root: Path) -> str:
    return "/" + str(path.relative_to(root))
