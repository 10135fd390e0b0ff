"""Learns a step model from measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from noria.capacity.features import StepFeatures, box_of
from noria.capacity.step_model import (
    SAMPLED_KNOTS,
    TOKEN_KNOTS,
    Regime,
    StepModel,
    ramp_columns,
    ramp_of,
)
from noria.capacity.uncertainty import Rows, uncertainty
from noria.config.errors import ConfigError

MIN_STEPS = 30  # fewer say nothing
_ROUNDS = 8  # of reweighting; what changes after that is below a tenth of a percent
_HUBER = 1.345  # times the spread: 95 % as efficient as least squares where errors are normal (Huber 1981)
_MIN_ROWS = 5  # measured steps between two knots, or they are one
_USUAL = 3.0  # times the spread: what lies further away is an outlier
_NORMAL = 1.4826  # a standard deviation is this many median absolute deviations


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """seconds: from its start to the next one's start, or to its end where nothing followed at once."""

    features: StepFeatures
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A model and how well it foretells steps that it was not learnt from.

    mape: mean absolute error of a step, relative to its measured time. bias: of the sum of all steps' times, likewise.
    """

    model: StepModel
    num_steps: int
    mape: float
    bias: float


def fit_steps(steps: Sequence[MeasuredStep]) -> Fit:
    """Learns from all steps; the errors are those of a model that was learnt from four fifths, in the other fifth.

    Least squares on relative errors with no negative coefficient, outliers weighted down (Huber 1964). Steps are held
    out in runs of ten, so that a slow moment of the machine is not on both sides.
    Raises ConfigError for too few steps.
    """
    if len(steps) < MIN_STEPS:
        raise ConfigError(
            f"{len(steps)} measured steps are too few to learn from; at least {MIN_STEPS} are needed"
        )
    is_held_out = np.arange(len(steps)) // 10 % 5 == 4
    learnt = [step for step, held in zip(steps, is_held_out, strict=True) if not held]
    held_out = [step for step, held in zip(steps, is_held_out, strict=True) if held] or learnt
    trial = learn(learnt)
    predicted = np.array([trial.seconds(step.features) for step in held_out])
    measured = np.array([step.seconds for step in held_out])
    return Fit(
        learn(steps),
        len(steps),
        float(np.mean(np.abs(predicted - measured) / measured)),
        float(predicted.sum() / measured.sum() - 1),
    )


def learn(steps: Sequence[MeasuredStep]) -> StepModel:
    features = np.array([step.features for step in steps], dtype=np.float64)
    seconds = np.array([step.seconds for step in steps])
    token_knots, sampled_knots = _knots(TOKEN_KNOTS, features[:, 0]), _knots(SAMPLED_KNOTS, features[:, 1])
    columns = _columns(features, token_knots, sampled_knots)
    coefficients, weights = _solve(columns, seconds)
    level = _level(seconds, columns @ coefficients)
    coefficients = coefficients * level
    residuals = np.log(seconds / (columns @ coefficients))
    regimes = [Regime.of(step.features) for step in steps]
    by_regime = {
        regime: tuple(residuals[[other is regime for other in regimes]].tolist()) for regime in Regime
    }
    unsure = uncertainty(Rows(columns / seconds[:, None], weights, seconds), coefficients)
    none = np.zeros(len(token_knots)), np.zeros(len(sampled_knots))
    empty = StepModel(
        0.0,
        ramp_of(token_knots, none[0]),
        ramp_of(sampled_knots, none[1]),
        0.0,
        0.0,
        0.0,
        by_regime,
        box_of([step.features for step in steps]),
        tuple(tuple(refit) for refit in (level * unsure.refits).tolist()),
        unsure.drift,
    )
    return empty.with_coefficients(coefficients.tolist())


def _level(seconds: np.ndarray, predicted: np.ndarray) -> float:
    """By how much to raise what is predicted: least squares of relative errors are content with too little where steps
    scatter, and the sum of all shall be right. Outliers on either side do not count.
    """
    errors = np.log(seconds / predicted)
    away = np.abs(errors - np.median(errors))
    is_usual = away <= max(_USUAL * _NORMAL * float(np.median(away)), 1e-6)
    return float(seconds[is_usual].sum() / predicted[is_usual].sum())


def _knots(knots: Sequence[int], counts: np.ndarray) -> tuple[int, ...]:
    """Those of the knots between which something was measured: what lies between two such is a straight line."""
    kept = [knots[0]]
    for knot in knots[1:]:
        if np.count_nonzero((counts > kept[-1]) & (counts <= knot)) >= _MIN_ROWS:
            kept.append(knot)
    return tuple(kept)


def _columns(features: np.ndarray, token_knots: Sequence[int], sampled_knots: Sequence[int]) -> np.ndarray:
    """[n, coefficients] of StepFeatures as rows [n, 5], in the order of StepModel's fields."""
    return np.hstack(
        [
            np.ones((len(features), 1)),
            ramp_columns(token_knots, features[:, 0]),
            ramp_columns(sampled_knots, features[:, 1]),
            features[:, 2:],
        ]
    )


def _solve(columns: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, and the weights of the rows."""
    relative = columns / seconds[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-30)  # columns nobody has stay at zero
    relative /= scale
    weights = np.ones(len(seconds))
    found = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        found, _residual = nnls(relative * root[:, None], root, maxiter=50 * columns.shape[1])
        errors = np.abs(relative @ found - 1)
        spread = max(_NORMAL * float(np.median(errors)), 1e-6)
        weights = np.minimum(1.0, _HUBER * spread / np.maximum(errors, 1e-12))
    return found / scale, weights
