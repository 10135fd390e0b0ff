"""What changed between two runs, or two operating points: their fingerprints, entry by entry."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from noria.config.errors import ConfigError
from noria.config.operating_point import OperatingPoint, read_operating_point


@dataclass(frozen=True, slots=True)
class Change:
    """before, after: None where a run has no such entry."""

    name: str
    before: Any
    after: Any


def fingerprint_of(run: str) -> dict[str, Any]:
    """Of a run's directory or result.json, or of an operating point. Raises ConfigError."""
    path = Path(run)
    path = path / "result.json" if path.is_dir() else path
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(
            f"{path} is neither a result of noria bench nor an operating point: {error}"
        ) from error
    if isinstance(content, dict) and content.keys() >= {"format", "settings"}:
        return _fingerprint_of_point(read_operating_point(str(path)))
    try:
        return dict(content["noria"]["fingerprint"])
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no result of noria bench: it has no fingerprint") from error


def _fingerprint_of_point(point: OperatingPoint) -> dict[str, Any]:
    """By the names that a run's has, as far as it has them."""
    told = asdict(point)
    return {
        "client": {"machine": told["fingerprint"]["machine"]},
        "engine": {"version": told["fingerprint"]["engine_version"]},
        "model": told["model"],
        "settings": told["fingerprint"]["settings"],
        "stated": told["settings"],
        "load": {key: told[key] for key in ("slo", "rate", "source")},
        "workload": told["workload"],
        "certificate": told["certificate"],
        "measured": told["measured"],
    }


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
