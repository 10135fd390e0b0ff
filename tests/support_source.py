"""Python sources as syntax trees, for the tests of the rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "noria"


@dataclass(frozen=True)
class Source:
    """path: below the folder that was asked for, with slashes."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The first folder; nothing for a file that is in none."""
        return self.path.split("/")[0] if "/" in self.path else ""


def sources(folder: Path = PACKAGE) -> Iterator[Source]:
    """Every Python file below a folder, in the order of names."""
    for path in sorted(folder.rglob("*.py")):
        yield Source(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
