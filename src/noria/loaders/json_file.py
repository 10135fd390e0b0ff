"""JSON files of a model directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noria.config.errors import ModelError
from noria.loaders.fields import shorten


def parse_object(text: str, source: str) -> dict[str, Any]:
    """The JSON object that `text` holds. Raises ModelError naming `source`."""
    return _object(text, source, None)


def parse_unique_object(text: str, source: str) -> dict[str, Any]:
    """As parse_object, but a key that appears twice, anywhere, is a fault instead of the last one winning."""
    return _object(text, source, _unique_keys)


def decode(raw: bytes, source: str) -> str:
    """UTF-8 text. Raises ModelError naming `source`."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{source}: not valid UTF-8 text: {error}") from error


def read_text(path: Path) -> str:
    """The file's UTF-8 text. Raises ModelError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    return decode(raw, str(path))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelError."""
    return parse_object(read_text(path), str(path))


def read_optional_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, {} when there is no such file. Raises ModelError."""
    return read_object(path) if path.is_file() else {}


def read_optional_list(path: Path) -> list[Any]:
    """The JSON list in a file, [] when there is no such file. Raises ModelError."""
    if not path.is_file():
        return []
    value = _value(read_text(path), str(path), None)
    if not isinstance(value, list):
        raise ModelError(f"{path}: must hold a JSON list, found {shorten(value)}")
    return value


def _object(text: str, source: str, hook: Any) -> dict[str, Any]:
    value = _value(text, source, hook)
    if not isinstance(value, dict):
        raise ModelError(f"{source}: must hold a JSON object, found {shorten(value)}")
    return value


def _value(text: str, source: str, hook: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{source}: not valid JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {shorten(key)} appears twice")
        values[key] = value
    return values
