"""A file of API keys: who holds which, and what each may take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noria.config.errors import ConfigError
from noria.config.tenant import Tenant

MAX_WEIGHT = 1_000_000
_LIMITS = ("weight", "max_concurrent", "tokens_per_minute")


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key, and the tenant that holds it."""

    key: str
    tenant: Tenant


def read_keys_file(path: str) -> tuple[HeldKey, ...]:
    """The keys in a JSON or YAML file: `name: key`, or `name: {key: ..., weight: ..., max_concurrent: ...,
    tokens_per_minute: ...}`. Raises ConfigError, which never holds a key.
    """
    content = _parse(path)
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"the keys file {path} must map at least one name to its key")
    held = tuple(_held(str(name), entry, path) for name, entry in content.items())
    names: dict[str, str] = {}
    for one in held:
        other = names.setdefault(one.key, one.tenant.name)
        if other != one.tenant.name:
            raise ConfigError(f"the keys file {path} gives {other!r} and {one.tenant.name!r} the same key")
    return held


def _parse(path: str) -> Any:
    # Parsers quote what they stumble over, which may be a key: of their words only the place is passed on.
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the keys file {path}: {reason}") from None
    if path.lower().endswith(".json"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"the keys file {path} is not valid JSON in line {error.lineno}") from None
    return _parse_yaml(text, path)


def _parse_yaml(text: str, path: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"reading the keys file {path} takes the package PyYAML, which is not installed; install it, or write "
            "the file as JSON with a name that ends in .json"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"the keys file {path} is not valid YAML{place}") from None


def _held(name: str, entry: Any, path: str) -> HeldKey:
    values = entry if isinstance(entry, dict) else {"key": entry}
    where = f"the keys file {path}, under {name!r}:"
    unknown = sorted(str(word) for word in values if word not in ("key", *_LIMITS))
    if unknown:
        raise ConfigError(f"{where} unknown {', '.join(unknown)}; there are key, {', '.join(_LIMITS)}")
    key = values.get("key")
    if not isinstance(key, str) or not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{where} the key must be text of printable ASCII characters without spaces")
    limits = {
        limit: _limit(values[limit], limit, where) for limit in _LIMITS if values.get(limit) is not None
    }
    return HeldKey(key, Tenant(name, **limits))


def _limit(value: Any, limit: str, where: str) -> int:
    most = MAX_WEIGHT if limit == "weight" else 2**53
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{where} {limit} must be a whole number from 1 to {most}")
    return value
