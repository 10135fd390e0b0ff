"""How far a step model may be from the truth: other coefficients that the measured steps allow as well, and how much
the machine's speed differs from one time to another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

NUM_REFITS = 100
_RUN = 16  # steps that are drawn together, so that what hangs together stays together
_NUM_PARTS = 20  # in which the machine's speed is looked at one by one
_FEWEST_RUNS = 3  # of a part
_RIDGE = 1e-12  # of the largest product: keeps coefficients that nothing tells of where they are


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured steps as a regression. relative: [n, c], columns over seconds; weights: [n], of a robust fit.

    seconds: [n], measured. Of a model with coefficients x, relative @ x is foretold over measured time.
    """

    relative: np.ndarray
    weights: np.ndarray
    seconds: np.ndarray


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """refits: [NUM_REFITS, c], coefficients. drift: standard deviation of the logarithm of the machine's speed."""

    refits: np.ndarray
    drift: float


def uncertainty(rows: Rows, coefficients: np.ndarray) -> Uncertainty:
    """Refits to runs of steps that are drawn with replacement (moving-block bootstrap), and the drift.

    The drift is what the errors of a model in parts of the measurement that it was not learnt from come to, beyond what
    scatter within the parts and the refits explain.
    """
    runs = _Runs(rows)
    draw = np.random.default_rng(0)
    num_runs = len(runs.products)
    counts = [
        np.bincount(draw.integers(0, num_runs, num_runs), minlength=num_runs) for _ in range(NUM_REFITS)
    ]
    refits = np.array([runs.solve(count.astype(np.float64)) for count in counts])
    return Uncertainty(refits, _drift(runs, coefficients, refits))


class _Runs:
    """Sums over runs of steps, from which any selection of runs is solved without looking at steps again."""

    def __init__(self, rows: Rows) -> None:
        starts = np.arange(0, len(rows.seconds), _RUN)
        weighted = rows.relative * rows.weights[:, None]
        self.products = np.array(
            [weighted[at : at + _RUN].T @ rows.relative[at : at + _RUN] for at in starts]
        )
        self.targets = np.array([weighted[at : at + _RUN].sum(axis=0) for at in starts])
        self.seconds = np.add.reduceat(rows.seconds, starts)
        self.columns = np.add.reduceat(rows.relative * rows.seconds[:, None], starts, axis=0)

    def hold_all_columns(self, counts: np.ndarray) -> bool:
        """Whether the runs, as often as counted, have steps with each column that any has."""
        squares = np.diagonal(self.products, axis1=1, axis2=2)
        return bool(np.all((counts @ squares > 0) == (squares.sum(axis=0) > 0)))

    def solve(self, counts: np.ndarray) -> np.ndarray:
        """Coefficients, none negative, of least squares over the runs as often as counted; 0 of what none has."""
        products = np.tensordot(counts, self.products, axes=1)
        is_seen = np.diag(products) > 0
        scale = np.sqrt(np.where(is_seen, np.diag(products), 1.0))
        scaled = products / np.outer(scale, scale) + _RIDGE * np.eye(len(scale))
        # The least squares of products alone: |L' x - L^-1 t|^2, where L L' are the products.
        values, vectors = np.linalg.eigh(scaled)
        root = np.sqrt(np.maximum(values, _RIDGE))
        target = (vectors.T @ (counts @ self.targets / scale)) / root
        found, _residual = nnls(root[:, None] * vectors.T, target, maxiter=100 * len(scale))
        solved: np.ndarray = np.where(is_seen, found / scale, 0.0)
        return solved


def _drift(runs: _Runs, coefficients: np.ndarray, refits: np.ndarray) -> float:
    num_runs = len(runs.seconds)
    num_parts = min(_NUM_PARTS, num_runs // _FEWEST_RUNS)
    if num_parts < 2:
        return 0.0
    everything = runs.solve(np.ones(num_runs))
    level = math.log(runs.seconds.sum() / (runs.columns @ everything).sum())
    missing = []
    for part in np.array_split(np.arange(num_runs), num_parts):
        others = np.ones(num_runs)
        others[part] = 0.0
        if not runs.hold_all_columns(others):
            continue  # what nothing but this part tells of is no drift
        measured = runs.seconds[part]
        foretold = runs.columns[part] @ runs.solve(others)
        error = math.log(measured.sum() / foretold.sum()) - level
        ratios = measured / (runs.columns[part] @ coefficients)
        scatter = float(ratios.var(ddof=1)) / len(part)
        spread = float(np.log(refits @ runs.columns[part].sum(axis=0)).var())
        missing.append(error**2 - scatter - spread)
    return math.sqrt(max(0.0, float(np.mean(missing)))) if missing else 0.0
