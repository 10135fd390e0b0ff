"""The public JSON-Schema-Test-Suite, which the source package of `jsonschema` carries: fetched by pip on first use."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from noria.loaders.pull import cache_directory

_PACKAGE = "jsonschema==4.26.0"
_FOLDER = "jsonschema-4.26.0/json/tests/draft2020-12/"


@lru_cache(maxsize=1)
def suite_schemas() -> list[tuple[str, dict[str, Any]]]:
    """(what it is about, schema) of every group of draft 2020-12 that is a schema by itself."""
    found = []
    with tarfile.open(_archive()) as archive:
        for member in sorted(archive.getnames()):
            inner = member.removeprefix(_FOLDER)
            if inner == member or "/" in inner or not inner.endswith(".json"):
                continue
            content = archive.extractfile(member)
            assert content is not None
            for group in json.load(content):
                if isinstance(group["schema"], dict):
                    found.append((f"{inner}: {group['description']}", group["schema"]))
    return found


def _archive() -> Path:
    folder = cache_directory()
    kept = folder / "jsonschema-4.26.0.tar.gz"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["download", "--no-deps", "--no-binary", "jsonschema", "-d", str(folder), _PACKAGE]
        subprocess.run([sys.executable, "-m", "pip", *command], check=True, capture_output=True)
    return kept
