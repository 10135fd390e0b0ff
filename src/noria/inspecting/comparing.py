"""Two runs of one prompt held against each other, op by op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noria.inspecting.traces import Trace


@dataclass(frozen=True, slots=True)
class Difference:
    """How far what an op wrote is from the reference's. relative: root mean square, of the reference's."""

    place: int  # in the forward, from 0
    label: str
    shape: tuple[int, ...]
    max_absolute: float
    relative: float

    def exceeds(self, tolerance: float) -> bool:
        return not self.relative <= tolerance  # also where it is NaN


def differences(ours: Trace, theirs: Trace) -> list[Difference]:
    """Of two backends' runs of one forward."""
    pairs = zip(ours.steps, theirs.steps, strict=True)
    return [difference(place, a.label, a.values, b.values) for place, (a, b) in enumerate(pairs)]


def difference(place: int, label: str, ours: np.ndarray, theirs: np.ndarray) -> Difference:
    """A shape that differs is an infinite difference."""
    if ours.shape != theirs.shape:
        return Difference(place, f"{label}: {ours.shape} against {theirs.shape}", ours.shape, np.inf, np.inf)
    gap = ours.astype(np.float64) - theirs
    scale = float(np.sqrt(np.mean(np.square(theirs, dtype=np.float64)))) if theirs.size else 0.0
    off = float(np.sqrt(np.mean(np.square(gap)))) if gap.size else 0.0
    relative = off / scale if scale else (np.inf if off else 0.0)
    return Difference(place, label, ours.shape, float(np.abs(gap).max(initial=0.0)), relative)


def first_beyond(found: Sequence[Difference], tolerance: float) -> Difference | None:
    return next((one for one in found if one.exceeds(tolerance)), None)
