"""What recorded steps say about how long steps take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.capacity.features import features_of
from noria.capacity.fit import MeasuredStep
from noria.engine.messages import StepRecord

_STALL = 0.25  # of a step's own time: a longer gap before the next is not the engine's work


def measured_steps(records: Sequence[StepRecord]) -> list[MeasuredStep]:
    """records: of one run, in their order.

    A step counts until the next one's start where that follows at once: what the engine does in between belongs to it.
    Where it had nothing to do afterwards, or somebody else had the machine, the usual gap stands in.
    """
    own = [record.plan_s + record.launch_s + record.wait_s + record.commit_s for record in records]
    ends = [record.start_s + seconds for record, seconds in zip(records, own, strict=True)]
    gaps = [after.start_s - end_s for after, end_s in zip(records[1:], ends, strict=False)]
    follows = [
        before.num_running + before.num_waiting > 0 and gap < _STALL * seconds
        for before, gap, seconds in zip(records, gaps, own, strict=False)
    ]
    close = [gap for gap, is_close in zip(gaps, follows, strict=True) if is_close]
    usual = float(np.median(close)) if close else 0.0
    chosen = [gap if is_close else usual for gap, is_close in zip(gaps, follows, strict=True)]
    return [
        MeasuredStep(features_of(record.work), seconds + gap)
        for record, seconds, gap in zip(records, own, [*chosen, usual], strict=False)
    ]


def step_ends_s(records: Sequence[StepRecord]) -> dict[float, float]:
    """By the instant at which a step's results were there, when the next one could begin."""
    steps = measured_steps(records)
    return {
        record.collected_s: record.start_s + step.seconds for record, step in zip(records, steps, strict=True)
    }
