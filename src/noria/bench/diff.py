"""What changed between two runs: their fingerprints, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from noria.config.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Change:
    """before, after: None where a run has no such entry."""

    name: str
    before: Any
    after: Any


def fingerprint_of(run: str) -> dict[str, Any]:
    """Of a run's directory or result.json. Raises ConfigError."""
    path = Path(run)
    path = path / "result.json" if path.is_dir() else path
    try:
        content = orjson.loads(path.read_bytes())
        return dict(content["noria"]["fingerprint"])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no result of noria bench: it has no fingerprint") from error


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """In the order of names."""
    first, second = flattened(before), flattened(after)
    names = sorted(first.keys() | second.keys())
    return [
        Change(name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def flattened(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        name = f"{prefix}{key}"
        flat |= flattened(entry, f"{name}.") if isinstance(entry, dict) else {name: entry}
    return flat
