"""Calls that a model must make: what its answer is then, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_COMPOSED = frozenset(
    ("$ref", "anyOf", "oneOf", "allOf", "patternProperties")
)  # what is named may be elsewhere

# How the grammar has it written: on one line. A model left to choose its space may choose nothing else.
_WRITTEN = {
    "x-guidance": {"whitespace_pattern": "", "item_separator": ", ", "key_separator": ": "},
}

Tools = Mapping[str, Mapping[str, Any]]  # by name, the schema of the arguments


def named_schema(parameters: Mapping[str, Any]) -> str:
    """The JSON schema of an answer that is the arguments of one certain tool."""
    return json.dumps({**_object_schema(parameters), **_WRITTEN})


def required_schema(tools: Tools, is_parallel: bool) -> str:
    """The JSON schema of an answer that is a list of calls: [{"name": ..., "parameters": {...}}, ...]."""
    listed: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [_call_schema(name, place) for place, name in enumerate(tools)]},
        "$defs": {
            _place_of(place): _moved(_object_schema(parameters), f"#/$defs/{_place_of(place)}")
            for place, parameters in enumerate(tools.values())
        },
    }
    if not is_parallel:
        listed["maxItems"] = 1
    return json.dumps({**listed, **_WRITTEN})


def _call_schema(name: str, place: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "parameters": {"$ref": f"#/$defs/{_place_of(place)}"}},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _place_of(place: int) -> str:
    return f"tool{place}"


def _object_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments are an object, whether or not their schema says so, and have no others than it names unless it does."""
    if not _COMPOSED.isdisjoint(parameters):
        return {"type": "object", **parameters}
    return {"type": "object", "additionalProperties": False, **parameters}


def _moved(value: Any, root: str) -> Any:
    """A schema that is to stand at another place: what it refers to within itself is there too."""
    if isinstance(value, Mapping):
        moved = {name: _moved(inner, root) for name, inner in value.items()}
        reference = moved.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            moved["$ref"] = root + reference[1:]
        return moved
    if isinstance(value, list):
        return [_moved(inner, root) for inner in value]
    return value
