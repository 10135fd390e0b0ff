"""From names and values, wherever they were written, to a frozen group of options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from noria.config.errors import ConfigError
from noria.config.option import Setting, as_key, inner_group, settings_of
from noria.config.problems import refuse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as the user gave it, and what they wrote it in: `--port`, `NORIA_PORT`, `port (in my.yaml)`."""

    raw: Any
    where: str


def from_mapping(cls: type[T], mapping: Mapping[str, Any], source: str = "") -> T:
    """A `cls` with the values of a flat mapping; keys as in Python or as flags without the leading dashes.

    source: the file that the mapping came from, for messages. Raises ConfigError naming every unknown key
    (and what it may have been meant for) and every wrong value.
    """
    return build(cls, given_by_mapping(cls, mapping, source))


def given_by_mapping(cls: type, mapping: Mapping[str, Any], source: str = "") -> dict[str, Given]:
    """Field name -> value, of a flat mapping. Raises ConfigError for unknown and for doubled keys."""
    names = {key: setting.name for setting in settings_of(cls) for key in setting.keys}
    suffix = f" (in {source})" if source else ""
    given: dict[str, Given] = {}
    problems = []
    for key, raw in mapping.items():
        name = names.get(as_key(key)) if isinstance(key, str) else None
        if name is None:
            problems.append(f"unknown setting {key!r}{suffix}{did_you_mean(str(key), names)}")
        elif name in given:
            problems.append(f"{key}{suffix} is the same setting as {given[name].where}: keep one of them")
        else:
            given[name] = Given(raw, f"{key}{suffix}")
    refuse(problems)
    return given


def build(cls: type[T], given: Mapping[str, Given]) -> T:
    """A `cls` with these values by field name, everything else at its default. Raises ConfigError."""
    values: dict[str, Any] = {}
    problems = []
    for setting in settings_of(cls):
        if setting.name not in given:
            continue
        try:
            values[setting.name] = _read(setting, given[setting.name])
        except ConfigError as error:
            problems.append(str(error))
    refuse(problems)
    return _construct(cls, values)


def with_settings(options: T, changes: Mapping[str, Any]) -> T:
    """A copy of a group of options with some values, by field name, written as in a mapping.

    Raises ConfigError for a wrong value.
    """
    settings = list(settings_of(type(options)))
    given = {setting.name: Given(value_of(options, setting), setting.name) for setting in settings}
    return build(type(options), given | {name: Given(raw, name) for name, raw in changes.items()})


def value_of(options: Any, setting: Setting) -> Any:
    """The value of a setting in a group of options, or in a group inside it."""
    if isinstance(options, setting.group):
        return getattr(options, setting.name)
    groups = (getattr(options, entry.name) for entry in fields(options) if inner_group(entry))
    return next(value_of(group, setting) for group in groups if setting in settings_of(type(group)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a known name is close to `word`, else nothing."""
    spelt = {as_key(name): name for name in known}
    close = get_close_matches(as_key(word), spelt, n=1, cutoff=0.7)
    return f"; did you mean {spelt[close[0]]!r}?" if close else ""


def _read(setting: Setting, given: Given) -> Any:
    # A mapping says null for "leave it at its default".
    return setting.default if given.raw is None else setting.read(given.raw, given.where)


def _construct(cls: type[T], values: Mapping[str, Any]) -> T:
    arguments: dict[str, Any] = {}
    for entry in fields(cls):  # type: ignore[arg-type]
        inner = inner_group(entry)
        if inner is not None:
            arguments[entry.name] = _construct(inner, values)
        elif entry.name in values:
            arguments[entry.name] = values[entry.name]
    return cls(**arguments)
