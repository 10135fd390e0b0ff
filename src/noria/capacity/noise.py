"""How the times of simulated steps scatter: as those of measured ones did, slow moments and all."""

from __future__ import annotations

import math
import random
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
        self._residuals = model.residuals
        self._random = random.Random(seed)
        self._next = dict.fromkeys(Regime, 0)
        self._left = dict.fromkeys(Regime, 0)

    def factor(self, regime: Regime, now_s: float) -> float:
        residuals = self._residuals.get(regime, ())
        if not residuals:
            return 1.0
        if self._left[regime] == 0 or self._next[regime] == len(residuals):
            self._next[regime] = self._random.randrange(len(residuals))
            self._left[regime] = _RUN
        place = self._next[regime]
        self._next[regime] += 1
        self._left[regime] -= 1
        return math.exp(residuals[place])


def measured_noise(model: StepModel, seed: int | None, replica: int) -> Noise:
    """seed: None where nothing is to scatter. Replicas scatter each on its own."""
    return NoNoise() if seed is None else MeasuredNoise(model, seed * 1009 + replica)
