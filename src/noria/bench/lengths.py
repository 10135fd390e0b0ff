"""Distributions of lengths in tokens, as a user writes them.

256                    always 256
64-512                 uniform, ends included
normal:256,64          mean, standard deviation
lognormal:256,0.8      median, sigma
normal:256,64,16,512   and the least and the most; what is drawn outside is moved to the nearer one
256*0.7+2048*0.3       a mix: each with its weight
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from noria.config.errors import ConfigError

_NUMBER = r"\d+(?:\.\d+)?"
_HELP = (
    "write 256, 64-512, normal:MEAN,SD or lognormal:MEDIAN,SIGMA, both perhaps with ,LEAST,MOST, or a mix as in "
    "256*0.7+2048*0.3"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """kind: fixed, uniform, normal or lognormal. a, b: its two parameters."""

    kind: str
    a: float
    b: float
    weight: float = 1.0
    low: float = 1.0
    high: float = float("inf")

    def draw(self, random: np.random.Generator) -> float:
        return min(max(self._drawn(random), self.low), self.high)

    def _drawn(self, random: np.random.Generator) -> float:
        if self.kind == "fixed":
            return self.a
        if self.kind == "uniform":
            return float(random.integers(int(self.a), int(self.b), endpoint=True))
        if self.kind == "normal":
            return float(random.normal(self.a, self.b))
        return float(random.lognormal(np.log(self.a), self.b))


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of whole numbers of tokens, at least 1."""

    text: str
    parts: tuple[_Part, ...]

    def draw(self, random: np.random.Generator) -> int:
        weights = np.array([part.weight for part in self.parts])
        part = self.parts[int(random.choice(len(self.parts), p=weights / weights.sum()))]
        return max(1, round(part.draw(random)))


def parse_lengths(text: str, name: str) -> Lengths:
    """name: the setting, for messages. Raises ConfigError."""
    parts = tuple(_part(word.strip(), text, name) for word in text.split("+"))
    return Lengths(text, parts)


def _part(word: str, text: str, name: str) -> _Part:
    weighted = re.fullmatch(rf"(.+)\*({_NUMBER})", word)
    if weighted:
        inner = _part(weighted[1], text, name)
        return replace(inner, weight=float(weighted[2]))
    if re.fullmatch(_NUMBER, word):
        return _Part("fixed", float(word), 0.0)
    uniform = re.fullmatch(r"(\d+)-(\d+)", word)
    if uniform and int(uniform[1]) <= int(uniform[2]):
        return _Part("uniform", float(uniform[1]), float(uniform[2]))
    spread = re.fullmatch(rf"(normal|lognormal):({_NUMBER}),({_NUMBER})(?:,({_NUMBER}),({_NUMBER}))?", word)
    if spread and float(spread[2]) > 0:
        low, high = float(spread[4] or 1), float(spread[5] or "inf")
        if low <= high:
            return _Part(spread[1], float(spread[2]), float(spread[3]), 1.0, low, high)
    raise ConfigError(f"{name} {text!r}: {word!r} is no length; {_HELP}")
