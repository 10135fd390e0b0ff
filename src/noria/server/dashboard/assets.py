"""The dashboard's files, and plotly's script where plotly is installed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
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
