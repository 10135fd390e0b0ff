"""Frozen records from parsed JSON, strictly: every key known, every value of its field's type."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from math import inf, isfinite
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from noria.config.errors import ConfigError
from noria.config.parse import did_you_mean
from noria.config.problems import refuse

T = TypeVar("T")

_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def parse_json(text: str, where: str) -> Any:
    """What a JSON text holds; no key may stand twice and no number be infinite. Raises ConfigError naming `where`."""
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_refuse_constant)
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not valid JSON: {error}") from None


def read_record(cls: type[T], content: Any, where: str) -> T:
    """A `cls`, whose fields are texts, numbers, mappings, other records or None of these, from parsed JSON.

    where: what the content is called in messages. Raises ConfigError naming everything that is wrong.
    """
    problems: list[str] = []
    record = _read_record(cls, content, where, problems)
    refuse(problems)
    return record


def _read_record(cls: type, content: Any, where: str, problems: list[str]) -> Any:
    """None where there are problems."""
    if not isinstance(content, Mapping):
        problems.append(f"{where} must be an object, got {_shown(content)}")
        return None
    num_before = len(problems)
    hints = get_type_hints(cls)
    known = {entry.name: entry for entry in fields(cls)}
    for key in content:
        if key not in known:
            problems.append(f"{where} has an unknown entry {key!r}{did_you_mean(key, known)}")
    values = {}
    for name, entry in known.items():
        if name in content:
            values[name] = _read(hints[name], content[name], f"{where}: {name}", problems)
        elif _must_be_given(entry):
            problems.append(f"{where} lacks {name!r}")
    if len(problems) > num_before:
        return None
    try:
        return cls(**values)
    except ConfigError as error:  # entries that are right by themselves and contradict each other
        problems.append(f"{where}: {error}")
        return None


def _read(hint: Any, raw: Any, where: str, problems: list[str]) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        if raw is None:
            return None
        [hint] = [one for one in get_args(hint) if one is not type(None)]
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_record(hint, raw, where, problems)
    if get_origin(hint) is not None:  # Mapping[str, ...]
        return _read_mapping(get_args(hint)[1], raw, where, problems)
    return raw if hint is Any else _read_plain(hint, raw, where, problems)


def _read_mapping(hint: Any, raw: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        problems.append(f"{where} must be an object, got {_shown(raw)}")
        return {}
    return {key: _read(hint, value, f"{where}: {key}", problems) for key, value in raw.items()}


def _read_plain(kind: type, raw: Any, where: str, problems: list[str]) -> Any:
    # In JSON 5 is a number as 5.0 is; true is none, whatever Python says.
    is_right = isinstance(raw, bool) if kind is bool else isinstance(raw, kind) and not isinstance(raw, bool)
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        raw, is_right = _as_float(raw), True
    if is_right and (kind is not float or isfinite(raw)):
        return raw
    problems.append(f"{where} must be {_WORDS[kind]}, got {_shown(raw)}")
    return None


def _as_float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return inf


def _must_be_given(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING


def _shown(raw: Any) -> str:
    if isinstance(raw, (Mapping, list)):
        return "an object" if isinstance(raw, Mapping) else "a list"
    text = "null" if raw is None else repr(raw)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{doubled!r} stands there twice")
    return content


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON's")
