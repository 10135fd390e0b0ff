"""Puts a recorded run through the scheduler again: every step must hold the same work.

What is given are the arrivals with their answers, when who was cancelled, and how long steps took. What is compared
are decisions: who computes how many tokens in each step, and who is preempted.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.capacity.arrivals import Arrival, Ending
from noria.capacity.run_file import Ended, Run
from noria.core.outputs import FinishReason
from noria.core.plan import Failure, Sampled, StepPlan, StepResult, Work
from noria.core.prefix import HashChain, Namespace
from noria.core.request import Claim, Request
from noria.engine.making import make_scheduler
from noria.engine.messages import StepRecord

_FAILED = (FinishReason.ERROR, FinishReason.FAULT)  # within a step
_ROUNDING_S = 1e-6  # that a sum of durations may have lost


@dataclass(frozen=True, slots=True)
class Difference:
    """The first step in which a replay decided otherwise. shares: (request id, tokens computed, tokens to compute)."""

    step: int
    recorded: tuple[tuple[str, int, int], ...]
    replayed: tuple[tuple[str, int, int], ...]

    def __str__(self) -> str:
        only_then = [share for share in self.recorded if share not in self.replayed]
        only_now = [share for share in self.replayed if share not in self.recorded]
        return f"step {self.step}: recorded {only_then[:5]}, replayed {only_now[:5]}"


@dataclass(frozen=True, slots=True)
class Replay:
    """num_steps: that were compared. difference: None where every decision was the same."""

    num_steps: int
    difference: Difference | None


def replay(run: Run) -> Replay:
    """Stops at the first difference, and before the first request that the log does not tell the end of."""
    engine = _Engine(run)
    for count, record in enumerate(run.steps):
        if any(request_id not in run.ended for request_id in record.arrived_ids):
            return Replay(count, None)
        plan = engine.plan(record)
        recorded, replayed = _shares(record.work), _shares(plan.work)
        if recorded != replayed or engine.preempted != record.preempted_ids:
            return Replay(count, Difference(record.step, recorded, replayed))
        engine.commit(plan, record)
    return Replay(len(run.steps), None)


def _shares(work: tuple[Work, ...]) -> tuple[tuple[str, int, int], ...]:
    return tuple((share.request_id, share.num_computed, share.num_new) for share in work)


class _Engine:
    """The scheduler of a run, and what is still to happen to it from outside."""

    def __init__(self, run: Run) -> None:
        self.preempted: tuple[str, ...] = ()
        self._ended = run.ended
        self._config = run.config
        self._scheduler = make_scheduler(run.config)
        outside = [one for one in run.ended.values() if _is_from_outside(one)]
        # In the order in which they ended; the last to go is the next.
        self._cancels = sorted(outside, key=lambda one: one.record.finished_s, reverse=True)

    def plan(self, record: StepRecord) -> StepPlan:
        """The step that the scheduler plans now, after all that happened before the recorded one."""
        planned_s = record.start_s + record.plan_s
        for request_id in record.arrived_ids:
            self._cancel_until(planned_s, self._scheduler.num_accepted)
            self._accept(self._ended[request_id].arrival)
        self._cancel_until(planned_s, None)
        plan = self._scheduler.plan(record.start_s)
        self.preempted = tuple(self._scheduler.take_tally().preempted_ids)
        return plan

    def commit(self, plan: StepPlan, record: StepRecord) -> None:
        end_s = record.collected_s + record.commit_s
        failed = {
            work.request_id
            for work in plan.work
            if self._ended[work.request_id].record.finish in _FAILED
            and record.start_s <= self._ended[work.request_id].record.finished_s <= end_s + _ROUNDING_S
        }
        left_out = {*failed, *record.unready_ids}
        sampled = tuple(
            self._sampled(work) for work in plan.work if work.samples and work.request_id not in left_out
        )
        failures = tuple(Failure(request_id, "as recorded") for request_id in failed)
        result = StepResult(plan.step, sampled, failures=failures, unready=record.unready_ids)
        self._scheduler.commit(plan, result, record.collected_s)
        self._scheduler.take_finished()

    def _accept(self, arrival: Arrival) -> None:
        message = arrival.request()
        request = Request(
            message.request_id,
            message.prompt_token_ids,
            message.params,
            0,
            HashChain(Namespace("replay"), self._config.cache.block_size),
            Claim(message.tenant, message.priority),
        )
        self._scheduler.add(request, self._ended[arrival.request_id].record.accepted_s)

    def _cancel_until(self, until_s: float, num_accepted: int | None) -> None:
        """Those that ended before that instant, and before any but so many requests had been accepted."""
        while self._cancels and self._cancels[-1].record.finished_s <= until_s:
            if num_accepted is not None and self._cancels[-1].record.num_accepted > num_accepted:
                return
            record = self._cancels.pop().record
            self._scheduler.cancel(record.request_id, record.finish)

    def _sampled(self, work: Work) -> Sampled:
        arrival = self._ended[work.request_id].arrival
        return Sampled(work.request_id, (arrival.token_after(work.num_computed + work.num_new),))


def _is_from_outside(one: Ended) -> bool:
    return one.arrival.ending is Ending.CANCEL and one.record.finish not in _FAILED
