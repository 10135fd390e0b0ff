"""The dashboard's files, and plotly's script where plotly is installed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NAMES = ("app.js", "blocks.js", "chat.js", "history.js", "plots.js", "style.css", "timeline.js", "icon.svg")

PLOTLY_PATH = "/dashboard/plotly.js"
EVENTS_PATH = "/dashboard/events"

# path -> file below this folder
FILES = {"/": "page.html", **{f"/dashboard/{name}": name for name in _NAMES}}

# Served without a key: what a browser has to load before somebody can type one. None of it tells anything about
# the model, the load or the texts; that is all in EVENTS_PATH.
PAGE_PATHS = frozenset((*FILES, PLOTLY_PATH))


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    media_type: str
    etag: str


@cache
def asset(path: str) -> Asset:
    """path: one of FILES."""
    file = _FOLDER / FILES[path]
    content = file.read_bytes()
    return Asset(content, _TYPES[file.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


@dataclass(frozen=True, slots=True)
class Plotly:
    script: Path
    version: str


@lru_cache(maxsize=1)
def plotly() -> Plotly | None:
    """plotly's own bundled script, found without importing plotly; None where it is not installed."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return Plotly(script, importlib.metadata.version("plotly"))
    return None
