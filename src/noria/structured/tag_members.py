"""What each format of a structural tag may say: all else is refused by its place, and nothing is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noria.structured.faults import GrammarFault

MAX_SHOWN = 80  # characters of what is at fault
BEGINS_NOT = "begins_not"

_FREE = ("excludes", "at_least_one", "stop_after_first")
MEMBERS = {
    "const_string": ("value",),
    "json_schema": ("json_schema",),
    "regex": ("pattern", "excludes"),
    "grammar": ("grammar",),
    "token": ("token",),
    "any_text": ("excludes", "max_chars"),
    "sequence": ("elements",),
    "or": ("elements",),
    "optional": ("content",),
    "star": ("content",),
    "plus": ("content",),
    "repeat": ("content", "min", "max"),
    "tag": ("begin", "content", "end"),
    "tags_with_separator": ("tags", "separator", "at_least_one", "stop_after_first"),
    "triggered_tags": ("triggers", "tags", *_FREE),
    "token_triggered_tags": ("trigger_tokens", "tags", *_FREE),
    "dispatch": ("rules", "loop", "excludes"),
    "token_dispatch": ("rules", "loop", "excludes"),
}
# What a format may say elsewhere and cannot be followed here, unless it says what holds anyway.
_USUAL: Mapping[str, Mapping[str, Any]] = {
    "json_schema": {"style": "json", "any_order": False},
    "token_triggered_tags": {"exclude_tokens": []},
    "dispatch": {"exclude_tokens": []},
    "token_dispatch": {"exclude_tokens": []},
}


@dataclass(frozen=True, slots=True)
class Head:
    """An expression that free text must not begin with. Noria's own: what is read from JSON holds none."""

    pattern: str


def check_members(kind: str, node: Mapping[str, Any], where: str) -> None:
    """Raises GrammarFault, as all of these do."""
    usual = _USUAL.get(kind, {})
    known = ("type", *MEMBERS[kind])
    for name, value in node.items():
        is_unsaid = value is None or isinstance(value, Head) or (name in usual and usual[name] == value)
        if name not in known and not is_unsaid:
            raise GrammarFault(f"{where}.{name[:MAX_SHOWN]} cannot be followed here; leave it out")


def flag(node: Mapping[str, Any], name: str, where: str, usual: bool = False) -> bool:
    """usual: where it is not stated."""
    stated = node.get(name)
    if stated is None:
        return usual
    if not isinstance(stated, bool):
        raise GrammarFault(f"{where}.{name} must be true or false")
    return stated
