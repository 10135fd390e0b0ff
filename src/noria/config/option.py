"""One setting, declared once: its flag, mapping key, environment name, help and docs row come from one field."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from math import isfinite
from typing import Any

from noria.config.errors import ConfigError
from noria.config.sizes import parse_count, parse_size

AUTO = "auto"

_WORDS_FOR_TRUE = ("1", "true", "yes", "on")
_WORDS_FOR_FALSE = ("0", "false", "no", "off")


class Several(Enum):
    """How an option that takes several values spells them on the command line."""

    NO = "no"
    REPEATED = "repeated"  # --flag a --flag b
    SPREAD = "spread"  # --flag a b


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of value. parse: text or a plain Python value -> the value; raises ValueError or TypeError.

    parse maps its own results onto themselves, so that a value may be read twice.
    """

    metavar: str
    expects: str  # completes "must be ..."
    parse: Callable[[Any], Any]


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError(raw)
    return raw


def _path(raw: Any) -> str:
    return _text(os.fspath(raw))


def _whole(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, (int, str)):
        raise ValueError(raw)
    return int(raw)


def _real(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)) or not isfinite(float(raw)):
        raise ValueError(raw)
    return float(raw)


def _switch(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    word = _text(raw).lower()
    if word not in _WORDS_FOR_TRUE + _WORDS_FOR_FALSE:
        raise ValueError(raw)
    return word in _WORDS_FOR_TRUE


def _size(raw: Any) -> int:
    return parse_size(raw) if isinstance(raw, str) else _whole(raw)


def _length(raw: Any) -> int | str:
    if raw in (AUTO, "-1") or (raw == -1 and not isinstance(raw, bool)):
        return AUTO
    return parse_count(raw) if isinstance(raw, str) else _whole(raw)


def _mapping(raw: Any) -> dict[str, Any]:
    value = json.loads(raw) if isinstance(raw, str) else raw
    if not isinstance(value, Mapping):
        raise ValueError(raw)
    return dict(value)


def _origin(raw: Any) -> str:
    text = _text(raw)
    if text != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s\[\]\"]+|null", text, re.IGNORECASE):
        raise ValueError(raw)
    return text


def _http_name(raw: Any) -> str:
    text = _text(raw)
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", text):
        raise ValueError(raw)
    return text


TEXT = Kind("TEXT", "text", _text)
WHOLE = Kind("N", "a whole number", _whole)
REAL = Kind("X", "a number", _real)
SWITCH = Kind("", "true or false", _switch)
SIZE = Kind("SIZE", "a size (bytes, or with a suffix as in 512MiB or 1.5GB)", _size)
LENGTH = Kind("TOKENS", "auto, or a number of tokens (8192; 8k is 8000, 8K is 8192)", _length)
PATH = Kind("PATH", "a path", _path)
MAPPING = Kind("JSON", 'a JSON object, as in {"name": 1}', _mapping)
ORIGIN = Kind("ORIGIN", "* or an origin, as in https://example.org", _origin)
HTTP_NAME = Kind("NAME", "* or a name of a method or a header", _http_name)
MODEL = Kind("MODEL", "a path or a name", _path)


@dataclass(frozen=True, slots=True)
class Option:
    """Everything about a setting but its field name and default.

    help: says what the setting is for and how to choose it. default_words: says what a default of None means.
    low, high: bounds, the ends included unless low_is_open. synonyms: other spellings of choices.
    aliases: other flags and keys. fallbacks: foreign environment names that are read after NORIA_*.
    positional: the command line also takes it without a flag. secret: never shown in a message.
    """

    help: str
    kind: Kind = TEXT
    default_words: str = ""
    choices: tuple[Any, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()
    low: float | None = None
    high: float | None = None
    low_is_open: bool = False
    aliases: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    several: Several = Several.NO
    positional: bool = False
    secret: bool = False

    @property
    def requirement(self) -> str:
        """What a value must be, in words that follow "must be"."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        words = [self.kind.expects]
        if self.low is not None:
            words.append(f"{'above' if self.low_is_open else 'of at least'} {self.low}")
        if self.high is not None:
            words.append(f"{'and ' if self.low is not None else ''}at most {self.high}")
        return " ".join(words)

    def read(self, raw: Any) -> Any:
        """The value that `raw` (text, or a plain Python value) stands for. Raises ValueError."""
        value = self.kind.parse(dict(self.synonyms).get(raw, raw) if isinstance(raw, str) else raw)
        if self.choices and value not in self.choices:
            raise ValueError(raw)
        if isinstance(value, (int, float)) and not self._is_in_range(value):
            raise ValueError(raw)
        return value

    def _is_in_range(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (value == self.low and self.low_is_open)):
            return False
        return self.high is None or value <= self.high


def option(default: Any, help: str, kind: Kind = TEXT, **details: Any) -> Any:
    """A dataclass field that is a setting. details: the other fields of `Option`."""
    about = Option(help=help, kind=kind, **details)
    return field(default=default, metadata={"option": about}, repr=not about.secret)


@dataclass(frozen=True, slots=True)
class Setting:
    """An option in its place: `name` is the field, `group` the dataclass that has it."""

    name: str
    default: Any
    about: Option
    group: type

    @property
    def flag(self) -> str:
        return as_flag(self.name)

    @property
    def title(self) -> str:
        """The heading that its group stands under in help and docs."""
        return str(getattr(self.group, "TITLE"))  # noqa: B009

    @property
    def environment(self) -> str:
        return f"NORIA_{self.name.upper()}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The names a mapping or a Python call may use, the field's own first; dashes count as underscores."""
        return (self.name, *(as_key(alias) for alias in self.about.aliases))

    def read(self, raw: Any, where: str) -> Any:
        """The value of `raw`. where: what the user wrote it in, for the message. Raises ConfigError."""
        if raw is None and self.default is None:
            return None
        if self.about.several is not Several.NO:
            items = (raw,) if isinstance(raw, str) else raw
            if not isinstance(items, (list, tuple)):
                raise self._error(raw, where)
            return tuple(self._read_one(item, where) for item in items)
        return self._read_one(raw, where)

    def _read_one(self, raw: Any, where: str) -> Any:
        try:
            return self.about.read(raw)
        except (ValueError, TypeError, OverflowError):
            raise self._error(raw, where) from None

    def _error(self, raw: Any, where: str) -> ConfigError:
        # A wrong key is still a key: it does not belong in a log.
        found = repr(raw) if raw == "" or not self.about.secret else f"a {type(raw).__name__}"
        return ConfigError(f"{where} must be {self.about.requirement}, got {found}")


def settings_of(cls: type) -> Iterator[Setting]:
    """The settings of a group, those of the groups inside it included, in the order of declaration."""
    for entry in fields(cls):
        inner = inner_group(entry)
        if inner is not None:
            yield from settings_of(inner)
        else:
            yield Setting(entry.name, entry.default, entry.metadata["option"], cls)


def inner_group(entry: Field[Any]) -> type | None:
    """The group of settings that a field holds, made with `field(default_factory=GROUP)`."""
    return entry.default_factory if isinstance(entry.default_factory, type) else None


def check_values(values: Any) -> None:
    """Read every option of a group again, as its `__post_init__`: no group can hold a wrong value."""
    for setting in settings_of(type(values)):
        if setting.group is type(values):
            value = setting.read(getattr(values, setting.name), setting.name)
            object.__setattr__(values, setting.name, value)


def as_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def as_key(text: str) -> str:
    """How a flag or a dashed key is spelt in Python: `--max-model-len` -> `max_model_len`."""
    return text.removeprefix("--").replace("-", "_")
