"""How long a step takes: the sum of what its tokens, logits and attention take, each learnt from measured steps."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from noria.capacity.features import Box, StepFeatures

# Where the cost of one more row of a matrix product may change: register tiles fill up, caches overflow.
TOKEN_KNOTS = (
    0,
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    2048,
    4096,
)
SAMPLED_KNOTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


class Regime(str, Enum):
    """What kinds of work a step holds: their times scatter differently."""

    PREFILL = "prefill"
    MIXED = "mixed"
    DECODE = "decode"

    @staticmethod
    def of(features: StepFeatures) -> Regime:
        if features.num_tokens == features.num_seqs:
            return Regime.DECODE
        return Regime.MIXED if features.decode_context else Regime.PREFILL


@dataclass(frozen=True, slots=True)
class Ramp:
    """A function of a count that never falls: linear between knots, and beyond the last.

    heights: at each knot. beyond: what it gains by one more than the last.
    """

    knots: tuple[int, ...]
    heights: tuple[float, ...]
    beyond: float

    def __call__(self, count: int) -> float:
        place = bisect_right(self.knots, count) - 1
        low, height = self.knots[place], self.heights[place]
        if place == len(self.knots) - 1:
            return height + self.beyond * (count - low)
        rise = self.heights[place + 1] - height
        return height + rise * (count - low) / (self.knots[place + 1] - low)

    def times(self, factor: float) -> Ramp:
        return Ramp(self.knots, tuple(factor * height for height in self.heights), factor * self.beyond)


def ramp_of(knots: Sequence[int], rises: np.ndarray) -> Ramp:
    """rises: [len(knots)], what it gains from each knot to the next; the last: by one more than the last knot."""
    heights = np.cumsum((0.0, *rises[:-1].tolist())).tolist()
    return Ramp(tuple(knots), tuple(heights), float(rises[-1]))


def ramp_columns(knots: Sequence[int], counts: np.ndarray) -> np.ndarray:
    """[n, len(knots)]: how far each count has gone from each knot to the next; the last: how far beyond it."""
    edges = np.array([*knots, np.inf])
    lengths = np.append(np.diff(edges[:-1]), 1.0)
    gone: np.ndarray = np.clip(counts[:, None] - edges[:-1], 0.0, edges[1:] - edges[:-1]) / lengths
    return gone


@dataclass(frozen=True, slots=True)
class StepModel:
    """Predicts the seconds from a step's start to the next one's, for one model, its settings and its machine.

    fixed_s: of every step. tokens, sampled: of that many rows. seq_s, chunk_pair_s, decode_pair_s: of a sequence, and
    of each earlier token that a token of a chunk, or a single one, attends to.
    residuals: by regime, logarithms of measured over predicted time in the order in which they were measured.
    box: where it was measured. refits: other coefficients that the measured steps allow as well, as in
    `with_coefficients`. drift: standard deviation of the logarithm of the machine's speed from one time to another.
    """

    fixed_s: float
    tokens: Ramp
    sampled: Ramp
    seq_s: float
    chunk_pair_s: float
    decode_pair_s: float
    residuals: dict[Regime, tuple[float, ...]]
    box: Box
    refits: tuple[tuple[float, ...], ...] = ()
    drift: float = 0.0

    def seconds(self, features: StepFeatures) -> float:
        return (
            self.fixed_s
            + self.tokens(features.num_tokens)
            + self.sampled(features.num_sampled)
            + self.seq_s * features.num_seqs
            + self.chunk_pair_s * features.chunk_context
            + self.decode_pair_s * features.decode_context
        )

    def with_coefficients(self, coefficients: Sequence[float]) -> StepModel:
        """Of fixed_s, the rises of tokens and of sampled from knot to knot and beyond, seq_s and both pair_s."""
        num_tokens, num_sampled = len(self.tokens.knots), len(self.sampled.knots)
        values = np.array(coefficients)
        seq_s, chunk_pair_s, decode_pair_s = coefficients[1 + num_tokens + num_sampled :]
        return replace(
            self,
            fixed_s=float(coefficients[0]),
            tokens=ramp_of(self.tokens.knots, values[1 : 1 + num_tokens]),
            sampled=ramp_of(self.sampled.knots, values[1 + num_tokens : 1 + num_tokens + num_sampled]),
            seq_s=seq_s,
            chunk_pair_s=chunk_pair_s,
            decode_pair_s=decode_pair_s,
        )

    def drawn(self, seed: int) -> StepModel:
        """One of those that may be the true one; of seed 0 the likeliest, which is this."""
        if seed == 0:
            return self
        draw = random.Random(f"step model {seed}")
        chosen = self.with_coefficients(draw.choice(self.refits)) if self.refits else self
        return chosen.times(math.exp(draw.gauss(0.0, self.drift))) if self.drift else chosen

    def times(self, factor: float) -> StepModel:
        """Of a machine on which every step takes `factor` times as long."""
        return replace(
            self,
            fixed_s=factor * self.fixed_s,
            tokens=self.tokens.times(factor),
            sampled=self.sampled.times(factor),
            seq_s=factor * self.seq_s,
            chunk_pair_s=factor * self.chunk_pair_s,
            decode_pair_s=factor * self.decode_pair_s,
        )
