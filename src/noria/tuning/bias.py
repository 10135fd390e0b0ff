"""What measuring some settings says of the others: log(real / simulated rate) by ridge regression."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noria.config.engine import EngineConfig

_PENALTY = (
    1.0  # of standardised slopes: with a handful of measurements the mean bias is most of what is known
)


def features(config: EngineConfig) -> list[float]:
    """What may make a simulation wrong by more or less."""
    scheduler, cache = config.scheduler, config.cache
    return [
        math.log2(scheduler.max_num_seqs),
        math.log2(scheduler.full_step_tokens),
        math.log2(cache.block_size),
        float(cache.enable_prefix_caching),
        float(scheduler.step_cost is not None),
    ]


class Bias:
    """Learnt from pairs of rates. Without any: none."""

    def __init__(self, measured: Sequence[tuple[EngineConfig, float]]) -> None:
        """measured: settings, and log(real / simulated)."""
        self._mean = 0.0
        self._centre = np.zeros(5)
        self._slopes = np.zeros(5)
        if measured:
            rows = np.array([features(config) for config, _ in measured])
            self._fit(rows, np.array([log_ratio for _, log_ratio in measured]))

    def _fit(self, rows: np.ndarray, logs: np.ndarray) -> None:
        self._mean, self._centre = float(logs.mean()), rows.mean(axis=0)
        scale = np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
        centred = (rows - self._centre) / scale
        penalty = _PENALTY * np.eye(centred.shape[1])
        self._slopes = np.linalg.solve(centred.T @ centred + penalty, centred.T @ (logs - self._mean)) / scale

    def log_ratio(self, config: EngineConfig) -> float:
        """Foretold log(real / simulated)."""
        return self._mean + float((np.array(features(config)) - self._centre) @ self._slopes)


def shifted(simulated: Sequence[tuple[float, float]], rate: float, margin: float) -> float:
    """log(real / simulated) by one probe: at `rate` the machine had the margin that the simulation has at another rate.

    simulated: (log of a rate, margin), ascending and never falling. Beyond them, as at their ends.
    """
    logs = np.array([log_rate for log_rate, _ in simulated])
    # A touch of slope, so that flat parts have an inverse.
    margins = np.array([one for _, one in simulated]) + 1e-9 * np.arange(len(simulated))
    return math.log(rate) - float(np.interp(margin, margins, logs))
