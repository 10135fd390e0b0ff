"""How fast the engine is: the time of its steps, told apart into prompts and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noria.config.engine import StepCost

_DECAY = 1 - 1 / 64  # of what is known, with each step: the last hundred or so count
_TIMED_WEIGHT = 0.05  # of what was timed at start, against a step that was seen
_GUESS_WEIGHT = 1e-4  # of what is assumed where nothing was
_LEAST_FIXED_TOKENS = 4  # what a step costs besides its tokens, in tokens
_UNKNOWN = StepCost(target_s=0.1, fixed_s=2e-3, token_s=2e-4, pair_s=0.0)

MIN_STEPS = 8  # before that nothing is foretold


@dataclass(frozen=True, slots=True)
class Pace:
    """A step takes fixed_s, prompt_token_s for each prompt token and output_token_s for each sequence that decodes."""

    fixed_s: float
    prompt_token_s: float
    output_token_s: float

    def step_s(self, num_decodes: float) -> float:
        """Of a step in which nothing but that many sequences advance."""
        return self.fixed_s + self.output_token_s * num_decodes


class PaceMeter:
    """Fits the pace to the steps seen: least squares of relative errors, older steps fading, nothing below zero.

    Steps that are all alike cannot tell fixed costs from those of tokens; what was timed at start decides then.
    """

    def __init__(self, prior: StepCost | None) -> None:
        self._prior_weight = _GUESS_WEIGHT if prior is None else _TIMED_WEIGHT
        prior = prior or _UNKNOWN
        token_s = max(prior.token_s, 1e-9)
        # A step without fixed costs is what noise made of the timing; it must not be held against what is seen.
        self._prior = (max(prior.fixed_s, _LEAST_FIXED_TOKENS * token_s), token_s, token_s)
        # Weighted sums of x_i, and of x_i * x_j for each pair once: 00, 01, 02, 11, 12, 22.
        self._targets = [0.0] * 3
        self._products = [0.0] * 6
        self._pace: Pace | None = None
        self.num_steps = 0

    def learn(self, seconds: float, num_prompt_tokens: int, num_decodes: int) -> None:
        """A step of at least one token."""
        x, y, z = 1 / seconds, num_prompt_tokens / seconds, num_decodes / seconds
        self._targets = _faded(self._targets, (x, y, z))
        self._products = _faded(self._products, (x * x, x * y, x * z, y * y, y * z, z * z))
        self.num_steps += 1
        self._pace = None

    def pace(self) -> Pace:
        if self._pace is None:
            self._pace = Pace(*self._fit())
        return self._pace

    def _fit(self) -> list[float]:
        xx, xy, xz, yy, yz, zz = self._products
        matrix = [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
        targets = list(self._targets)
        for i, assumed in enumerate(self._prior):
            matrix[i][i] += self._prior_weight / assumed**2
            targets[i] += self._prior_weight / assumed
        kept = [0, 1, 2]
        while True:
            values = _solve([[matrix[i][j] for j in kept] for i in kept], [targets[i] for i in kept])
            lowest = min(range(len(kept)), key=values.__getitem__)
            if values[lowest] >= 0:
                break
            del kept[lowest]  # no part of a step takes less than no time
        fitted = [0.0] * 3
        for i, value in zip(kept, values, strict=True):
            fitted[i] = value
        return fitted


def _faded(sums: Sequence[float], news: Sequence[float]) -> list[float]:
    return [known * _DECAY + new for known, new in zip(sums, news, strict=True)]


def _solve(matrix: list[list[float]], targets: Sequence[float]) -> list[float]:
    """The solution of a small positive definite system, by elimination."""
    size = len(targets)
    rows = [[*row, target] for row, target in zip(matrix, targets, strict=True)]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [value / pivot for value in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [value - factor * base for value, base in zip(rows[j], rows[i], strict=True)]
    return [row[size] for row in rows]
