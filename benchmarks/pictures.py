"""Pictures of benchmarks: the same figures make the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def open_pyplot() -> Any:
    """Matplotlib's, which is not among the dependencies: it is for such pictures alone."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "noria"
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """As SVG or PNG, by its name."""
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
