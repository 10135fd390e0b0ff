"""The engine: plan, launch and collect, commit. One loop for live, tested and simulated runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from noria.core.clock import Clock
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import StepPlan
from noria.core.prefix import HashChain
from noria.core.request import Claim, Request
from noria.core.scheduler import Scheduler
from noria.engine.deadlines import Deadlines
from noria.engine.messages import EngineRequest, EngineStats
from noria.engine.namespaces import NamespaceOf
from noria.engine.recording import StepTimes, request_record, step_record
from noria.engine.records import Recorder
from noria.engine.runner_api import Runner
from noria.structured.api import Constraints, NoConstraints


class EngineLoop:
    """Turns requests into deltas, a step at a time. Single-threaded: its owner calls everything.

    namespace_of: within which a request shares cached prefixes.
    publish: takes each step's deltas, before the next one is planned.
    constraints: say which tokens a request may choose; asked while the step computes.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        clock: Clock,
        recorder: Recorder,
        namespace_of: NamespaceOf,
        publish: Callable[[list[Delta]], None],
        constraints: Constraints | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.recorder = recorder
        self.clock = clock
        self.constraints = constraints or NoConstraints()
        self._namespace_of = namespace_of
        self._publish = publish
        self._unpublished: list[Delta] = []
        self._num_steps = 0
        self._deadlines = Deadlines()
        self._latest_starts = Deadlines()

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or bool(self._unpublished)

    def add(self, message: EngineRequest, submitted_s: float, begin_by_s: float = math.inf) -> None:
        """Queue a request. submitted_s: its arrival, from which its deadline counts. begin_by_s: one with a deadline
        that has not begun by then ends as if it had passed. Raises RequestError if it can never be served.
        """
        request = Request(
            message.request_id,
            message.prompt_token_ids,
            message.params,
            message.seed,
            HashChain(self._namespace_of(message), self.scheduler.kv.block_size),
            Claim(message.tenant, message.priority),
        )
        self.scheduler.add(request, submitted_s)
        if message.timeout_s is not None:
            self._deadlines.add(message.request_id, submitted_s + message.timeout_s)
            self._latest_starts.add(message.request_id, begin_by_s)

    def cancel(self, request_ids: Iterable[str], finish: FinishReason = FinishReason.ABORT) -> None:
        """End requests, whatever their state; their blocks are free before the next step is planned."""
        for request_id in request_ids:
            delta = self.scheduler.cancel(request_id, finish)
            if delta is not None:
                self._unpublished.append(delta)
        self._record_finished(self.clock.now())

    def step(self) -> None:
        start_s = self.clock.now()
        self._expire(start_s)
        # The previous step's news: whoever it is for has a processor to itself until this one computes.
        self._flush()
        plan = self.scheduler.plan(start_s)
        planned_s = self.clock.now()
        if plan.is_empty:
            return
        pending = self.runner.launch(plan)
        launched_s = self.clock.now()
        result = self.runner.collect(pending, self.constraints.masks_for(plan))
        self.constraints.accept(result)
        collected_s = self.clock.now()
        self._unpublished = self.scheduler.commit(plan, result, collected_s)
        self._record(plan, StepTimes(start_s, planned_s, launched_s, collected_s, self.clock.now()))

    def _expire(self, now_s: float) -> None:
        late = self._deadlines.take_due(now_s)
        late += [name for name in self._latest_starts.take_due(now_s) if not self.scheduler.has_begun(name)]
        if late:
            self.cancel(late, FinishReason.TIMEOUT)

    def abort_all(self) -> None:
        """Cancel every request and publish what is left to say."""
        self.cancel(
            [request.id for queue in (self.scheduler.running, self.scheduler.waiting) for request in queue]
        )
        self._flush()

    def stats(self) -> EngineStats:
        scheduler = self.scheduler
        return EngineStats(
            step=self._num_steps,
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_blocks=scheduler.kv.pool.num_blocks,
            num_blocks_used=scheduler.kv.num_blocks_used,
            num_blocks_cached=scheduler.kv.num_blocks_cached,
            is_alive=True,
        )

    def _flush(self) -> None:
        deltas, self._unpublished = self._unpublished, []
        if deltas:
            self._publish(deltas)

    def _record(self, plan: StepPlan, times: StepTimes) -> None:
        if plan.work:  # else it only told the runner whom to forget
            tally = self.scheduler.take_tally()
            self._num_steps += 1
            changed = self.scheduler.kv.take_changes()
            self.recorder.record_step(step_record(plan, times, tally, self.stats(), changed))
        self._record_finished(times.committed_s)

    def _record_finished(self, now_s: float) -> None:
        """Before their last news goes out: whoever hears that a request has ended finds its record."""
        finished = self.scheduler.take_finished()
        self.constraints.forget([request.id for request, _ in finished if request.params.is_constrained])
        for request, finish in finished:
            self._deadlines.forget(request.id)
            self._latest_starts.forget(request.id)
            changed = self.scheduler.kv.take_changes()
            self.recorder.record_request(
                request_record(request, finish, now_s, self.scheduler.num_accepted, changed)
            )
