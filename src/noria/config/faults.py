"""What can be wrong with a combination of settings, and changes that may mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from noria.config.option import as_flag


class Fault(Enum):
    BEYOND_MODEL = "the length is more than the model has"
    POOL_STATED_TWICE = "two sizes for one pool"
    NO_BLOCK = "the pool holds no block"
    BEYOND_POOL = "the pool holds no request of the length"
    MEMORY = "memory holds too little"
    UNCUT_PROMPTS = "steps cannot be kept short"
    BEYOND_STEP = "a whole prompt does not fit a step"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Settings, as text for a flag (None for a switch), that may mend a fault when they are all changed."""

    changes: Mapping[str, str | None]

    @property
    def words(self) -> str:
        parts = (
            as_flag(name) + (f" {text}" if text is not None else "") for name, text in self.changes.items()
        )
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Problem:
    """text: what is wrong, with the numbers. remedies: candidates, the mildest first; they are tried before one
    is shown. otherwise: advice that is no setting, or that cannot be tried.
    """

    fault: Fault
    text: str
    remedies: tuple[Remedy, ...] = ()
    otherwise: tuple[str, ...] = ()
