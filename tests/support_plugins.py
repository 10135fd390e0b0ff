"""Packages with entry points, made in a directory as pip would leave them, for tests to put on the path."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest


def install(
    directory: Path, distribution: str, points: Mapping[str, Mapping[str, str]], modules: Mapping[str, str]
) -> None:
    """points: by group, name -> target. modules: by name, the source. The version is 1.0."""
    info = directory / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = []
    for group, entries in points.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for name, source in modules.items():
        (directory / f"{name}.py").write_text(source)


@contextmanager
def on_path(directory: Path) -> Iterator[None]:
    """In this process and in those that it starts, for as long as the block lasts."""
    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
        importlib.invalidate_caches()
        yield
        for name in set(sys.modules) - known:
            if str(directory) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
