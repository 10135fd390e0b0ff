"""How the times of simulated steps scatter: as those of measured ones did, slow moments and all."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Protocol

from noria.capacity.step_model import Regime, StepModel

_RUN = 16  # steps that follow each other as they were measured


class Noise(Protocol):
    def factor(self, regime: Regime, now_s: float) -> float:
        """What a step of that regime that begins now takes, over what was predicted."""
        ...


class NoNoise:
    def factor(self, regime: Regime, now_s: float) -> float:
        return 1.0


class MeasuredNoise:
    """Residuals of the model in runs: a step that was slow because the machine was is followed by others.

    (Moving-block bootstrap: H. Kuensch, The jackknife and the bootstrap for general stationary observations, 1989.)
    """

    def __init__(self, model: StepModel, seed: int) -> None:
        self._random = random.Random(seed)
        self._factors = {
            regime: self._runs([math.exp(residual) for residual in residuals])
            for regime, residuals in model.residuals.items()
            if residuals
        }

    def factor(self, regime: Regime, now_s: float) -> float:
        factors = self._factors.get(regime)
        return 1.0 if factors is None else next(factors)

    def _runs(self, factors: Sequence[float]) -> Iterator[float]:
        """Without an end, in runs from anywhere on."""
        while True:
            place = self._random.randrange(len(factors))
            yield from factors[place : place + _RUN]


def measured_noise(model: StepModel, seed: int | None, replica: int) -> Noise:
    """seed: None where nothing is to scatter. Replicas scatter each on its own."""
    return NoNoise() if seed is None else MeasuredNoise(model, seed * 1009 + replica)
