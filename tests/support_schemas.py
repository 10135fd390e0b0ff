"""Random JSON schemas, of everything that outputs are held to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
PATTERNS = ("^[a-z]{2,5}$", "^\\d{3}-\\d{2}$", "^(cat|dog)s?$", "^[A-F0-9]{4}$")
FORMATS = ("date", "uuid", "ipv4")
NAMES = ("name", "größe", "a b", 'quo"te', "x_1", "$id2", "", "back\\slash", "😀")


class Schemas:
    """The same seed draws the same schemas."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def next(self) -> Schema:
        """One whose texts are mostly short."""
        return self._schema(depth=3)

    def _schema(self, depth: int) -> Schema:
        leaves = (self._string, self._integer, self._number, self._enum, self._plain)
        branches = (self._object, self._object, self._array, self._tuple, self._any_of, self._reference)
        kinds: tuple[Callable[[int], Schema], ...] = (*leaves, *branches) if depth else leaves
        return self._draw.choice(kinds)(depth)

    def _string(self, depth: int) -> Schema:
        kind = self._draw.randrange(4)
        if kind == 0:
            return {"type": "string", "pattern": self._draw.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": self._draw.choice(FORMATS)}
        low = self._draw.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + self._draw.randrange(12)}

    def _integer(self, depth: int) -> Schema:
        low = self._draw.randrange(-1000, 1000)
        high = low + self._draw.randrange(1, 5000)
        return self._draw.choice((
            {"type": "integer", "minimum": low, "maximum": high},
            {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": high + 2},
            {"type": "integer", "minimum": 0, "maximum": 9999, "multipleOf": self._draw.randrange(1, 30)},
        ))  # fmt: skip

    def _number(self, depth: int) -> Schema:
        low = round(self._draw.uniform(-100, 100), 2)
        return {"type": "number", "minimum": low, "maximum": round(low + self._draw.uniform(1, 500), 2)}

    def _enum(self, depth: int) -> Schema:
        values = [None, True, 0, -7, 1.5, "", "a", "ünï", [1, "b"], {"k": None}]
        return self._draw.choice(
            ({"enum": self._draw.sample(values, 3)}, {"const": self._draw.choice(values)})
        )

    def _plain(self, depth: int) -> Schema:
        return {"type": self._draw.choice(("boolean", "null", ["boolean", "null"]))}

    def _object(self, depth: int) -> Schema:
        names = self._draw.sample(NAMES, self._draw.randrange(1, 5))
        schema: Schema = {
            "type": "object",
            "properties": {name: self._schema(depth - 1) for name in names},
            "required": self._draw.sample(names, self._draw.randrange(len(names) + 1)),
        }
        kind = self._draw.randrange(3)
        if kind < 2:
            schema["additionalProperties"] = False if kind else self._schema(0)
        return schema

    def _array(self, depth: int) -> Schema:
        low = self._draw.randrange(3)
        return {
            "type": "array",
            "items": self._schema(depth - 1),
            "minItems": low,
            "maxItems": low + self._draw.randrange(3),
        }

    def _tuple(self, depth: int) -> Schema:
        items = [self._schema(depth - 1) for _ in range(self._draw.randrange(1, 3))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}

    def _any_of(self, depth: int) -> Schema:
        return {"anyOf": [self._schema(depth - 1) for _ in range(self._draw.randrange(1, 4))]}

    def _reference(self, depth: int) -> Schema:
        """A list of itself, or of something else."""
        node = {
            "type": "object",
            "properties": {
                "value": self._schema(0),
                "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]},
            },
            "required": ["value", "next"],
            "additionalProperties": False,
        }
        return {"$defs": {"n": node}, "$ref": "#/$defs/n"} if depth == 3 else self._schema(depth - 1)
