"""Which decoding rule a request asks for: plain data; the rule itself runs in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from noria.config.errors import RequestError

FIELD = "sampler"  # of the HTTP API, by which errors name it


@dataclass(frozen=True, slots=True)
class Rule:
    """name: of an entry point of the group noria.samplers. arguments: a JSON object; the rule says what it takes.

    Raises RequestError for values that are neither.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise RequestError(
                f"{FIELD}.name must be the name of a decoding rule, got {self.name!r:.100}", FIELD
            )
        try:
            plain = json.loads(json.dumps(self.arguments))
        except (TypeError, ValueError, RecursionError):
            plain = None
        if not isinstance(plain, dict):
            raise RequestError(f"{FIELD}.arguments must be a JSON object, got {self.arguments!r:.100}", FIELD)
        object.__setattr__(self, "arguments", plain)
