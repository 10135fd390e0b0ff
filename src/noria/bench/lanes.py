"""Who computed what when: the steps of an engine as lanes, a lane for each sequence of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """A sequence in a lane. Instants: seconds since the first step. prompt_end_s: when its first token came."""

    request_id: str
    lane: int
    start_s: float
    prompt_end_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Lanes:
    """num_lanes: most sequences that were in at once. idle: share of lanes x time that nothing was computed in."""

    spans: tuple[Span, ...]
    num_lanes: int
    end_s: float

    @property
    def idle(self) -> float:
        busy = sum(span.end_s - span.start_s for span in self.spans)
        whole = self.num_lanes * self.end_s
        return 1 - busy / whole if whole > 0 else 0.0


def lanes_of(steps: Sequence[dict[str, Any]], num_lanes: int) -> Lanes:
    """steps: rows as a StepLog keeps them. num_lanes: of the batch."""
    if not steps:
        return Lanes((), num_lanes, 0.0)
    origin_s = steps[0]["t_start"]
    spans: list[Span] = []
    for request_id, start_s, prompt_end_s, end_s in sorted(_lives(steps), key=lambda life: life[1]):
        taken = {span.lane for span in spans if span.end_s > start_s - origin_s}
        lane = next(lane for lane in range(len(taken) + 1) if lane not in taken)
        spans.append(Span(request_id, lane, start_s - origin_s, prompt_end_s - origin_s, end_s - origin_s))
    return Lanes(tuple(spans), num_lanes, _end(steps[-1]) - origin_s)


def _lives(steps: Iterable[dict[str, Any]]) -> list[tuple[str, float, float, float]]:
    """Of every request: id, start of its first step, end of the step that finished its prompt, end of its last step."""
    lives: dict[str, list[float]] = {}
    for step in steps:
        end_s = _end(step)
        for request_id, _, num_new in step["work"]:
            life = lives.setdefault(request_id, [step["t_start"], end_s, end_s])
            if num_new > 1:  # still the prompt
                life[1] = end_s
            life[2] = end_s
    return [(name, life[0], life[1], life[2]) for name, life in lives.items()]


def _end(step: dict[str, Any]) -> float:
    return float(step["t_start"] + (step["sched_us"] + step["exec_us"] + step["post_us"]) / 1e6)
