"""Optional packages that are there or not, found without importing them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from noria.config.errors import ConfigError


def require(package: str, extra: str, wanted_by: str) -> None:
    """Raise ConfigError, naming what to install, where a package is missing. extra: of Noria, that brings it."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"{wanted_by} needs {package}: pip install 'noria[{extra}]'")


@dataclass(frozen=True, slots=True)
class Plotly:
    script: Path
    version: str


@lru_cache(maxsize=1)
def plotly() -> Plotly | None:
    """plotly's own bundled script; None where it is not installed."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return Plotly(script, importlib.metadata.version("plotly"))
    return None
