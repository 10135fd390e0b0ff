"""A step plan under construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from noria.core.plan import BlockMove, NewRequest, StepPlan, Work
from noria.core.request import Request


@dataclass(slots=True)
class DraftWork:
    request: Request
    num_new: int = 0
    new_blocks: list[int] = field(default_factory=list)

    def freeze(self) -> Work:
        request = self.request
        completes = request.num_computed + self.num_new == request.num_known
        return Work(
            request_id=request.id,
            num_computed=request.num_computed,
            num_new=self.num_new,
            new_blocks=tuple(self.new_blocks),
            samples=completes and request.num_known < request.max_known,
        )


class Draft:
    """Collects work until the budget is spent. Work can be added to a request twice, and dropped again."""

    def __init__(self, budget: int) -> None:
        self.budget_left = budget
        self._work: dict[str, DraftWork] = {}
        self._arrivals: list[NewRequest] = []
        self._moves: list[BlockMove] = []

    @property
    def is_empty(self) -> bool:
        return not self._work

    def num_new(self, request: Request) -> int:
        """Tokens of the request that are in the draft already."""
        work = self._work.get(request.id)
        return work.num_new if work else 0

    def add(self, request: Request, num_new: int, new_blocks: Sequence[int]) -> None:
        assert 0 < num_new <= self.budget_left, f"{num_new} tokens of a budget of {self.budget_left}"
        work = self._work.setdefault(request.id, DraftWork(request))
        work.num_new += num_new
        work.new_blocks.extend(new_blocks)
        self.budget_left -= num_new

    def introduce(self, request: Request, moves: Sequence[BlockMove]) -> None:
        """Tell the runner of a request that it does not know."""
        self._arrivals.append(
            NewRequest(request.id, tuple(request.token_ids), request.num_prompt, request.params, request.seed)
        )
        self._moves.extend(moves)

    def drop(self, request: Request) -> None:
        """Take back a request's work, if it has any."""
        work = self._work.pop(request.id, None)
        if work is not None:
            self.budget_left += work.num_new

    def freeze(self, step: int, departures: Sequence[str]) -> StepPlan:
        return StepPlan(
            step=step,
            arrivals=tuple(self._arrivals),
            work=tuple(work.freeze() for work in self._work.values()),
            moves=tuple(self._moves),
            departures=tuple(departures),
        )
