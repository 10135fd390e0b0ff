"""The tree of formats that a structural tag is, whichever of its two forms it was sent in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MAX_SHOWN = 80  # characters of a name


def tree_of(text: str) -> Any:
    """text: {"format": a tree of formats}, or free text, in which a trigger begins a structure: {"structures":
    [{begin, schema, end}], "triggers": [...]}. Raises ValueError, and RecursionError for too much nesting.
    """
    asked: Any = json.loads(text)
    asked = asked if isinstance(asked, dict) else {}
    if asked.get("format") is None:
        return _free_with_structures(asked)
    _refuse_others(asked, ("type", "format"), "structural_tag")
    return asked["format"]


def are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


def _free_with_structures(asked: Mapping[str, Any]) -> dict[str, Any]:
    structures: Any = asked.get("structures")
    triggers: Any = asked.get("triggers")
    if not structures or not isinstance(structures, list) or not are_texts(triggers):
        raise ValueError("it needs `structures`, a list of objects, and `triggers`, a list of strings")
    _refuse_others(asked, ("type", "structures", "triggers"), "structural_tag")
    tags = [_structure(one, triggers) for one in structures]
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


def _structure(asked: Any, triggers: list[str]) -> dict[str, Any]:
    if not isinstance(asked, dict) or not are_texts([asked.get("begin"), asked.get("end")]):
        raise ValueError("a structure is an object with the strings `begin` and `end` and an object `schema`")
    _refuse_others(asked, ("begin", "schema", "end"), "a structure")
    schema, begin = asked.get("schema"), asked["begin"]
    if not isinstance(schema, dict):
        raise ValueError(f"the structure that begins with {begin!r:.100} needs an object `schema`")
    if not any(one and begin.startswith(one) for one in triggers):
        raise ValueError(f"no trigger begins the structure that begins with {begin!r:.100}")
    content = {"type": "json_schema", "json_schema": schema}
    return {"type": "tag", "begin": begin, "content": content, "end": asked["end"]}


def _refuse_others(stated: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """What is null is not stated."""
    for name, value in stated.items():
        if name not in known and value is not None:
            raise ValueError(f"{where}.{name[:_MAX_SHOWN]} cannot be followed here; leave it out")
