"""One simulated engine: the real loop, scheduler, block pool and intake on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from noria.capacity.arrivals import Arrival
from noria.capacity.noise import Noise
from noria.capacity.sim_runner import SimRunner
from noria.capacity.step_model import StepModel
from noria.config.engine import EngineConfig
from noria.config.errors import OverloadError, RequestError
from noria.core.acceptance import max_known_tokens
from noria.core.clock import VirtualClock
from noria.core.outputs import Delta, FinishReason
from noria.core.request import Request
from noria.engine.intake import Intake
from noria.engine.making import make_loop
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.records import Recorder


@dataclass(slots=True)
class Outcome:
    """What became of an arrival. Instants in seconds since the load began.

    token_times_s: when each token of the answer went out. finish: None while it runs. refusal: why it was not taken.
    """

    arrival: Arrival
    replica: int
    token_times_s: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    finished_s: float = math.nan
    num_cached: int = 0
    refusal: str | None = None
    record: RequestRecord | None = None


class Replica:
    """Its clock may be ahead of an arrival, in the middle of a step: then the arrival waits, as it would in life."""

    def __init__(
        self,
        config: EngineConfig,
        model: StepModel,
        noise: Noise,
        on_end: Callable[[Outcome], None],
        index: int = 0,
        keeps_steps: bool = True,
    ) -> None:
        """on_end: told of each outcome once it is final."""
        self.index = index
        self.steps: list[StepRecord] = []
        self.outcomes: dict[str, Outcome] = {}
        self._keeps_steps = keeps_steps
        self._on_end = on_end
        self._arrivals: dict[str, Arrival] = {}
        self.clock = VirtualClock()
        self.runner = SimRunner(model, noise, self.clock, self._arrivals)
        recorder = Recorder(max_steps=1, max_requests=1)
        recorder.add_listener(self)
        self._max_model_len = config.scheduler.max_model_len
        self._intake = Intake(config)
        recorder.add_listener(self._intake)
        self._loop = make_loop(config, self.runner, self.clock, recorder, self._publish)

    @property
    def num_open(self) -> int:
        """Requests that wait or run."""
        return len(self._loop.scheduler.waiting) + len(self._loop.scheduler.running)

    @property
    def num_open_tokens(self) -> int:
        """Tokens that those know and have not computed."""
        scheduler = self._loop.scheduler
        return sum(_num_pending(one) for queue in (scheduler.waiting, scheduler.running) for one in queue)

    @property
    def has_work(self) -> bool:
        return self._loop.has_work

    def step(self) -> None:
        self._loop.step()

    def idle_until(self, now_s: float) -> None:
        """With nothing to do, time passes; a step that was begun is never cut."""
        if not self._loop.has_work:
            self.clock.advance(max(0.0, now_s - self.clock.now()))

    def submit(self, arrival: Arrival) -> Outcome:
        """At its own instant, which the clock has reached. It may be refused, which is an outcome."""
        outcome = self.outcomes[arrival.request_id] = Outcome(arrival, self.index)
        request = arrival.request()
        try:
            max_known_tokens(arrival.num_prompt, request.params, self._max_model_len)
            begin_by_s = self._intake.take([request], arrival.at_s)
        except (OverloadError, RequestError) as error:
            outcome.refusal, outcome.finished_s = str(error), arrival.at_s
            self._on_end(outcome)
            return outcome
        self._arrivals[arrival.request_id] = arrival
        self._loop.add(request, arrival.at_s, begin_by_s)
        return outcome

    def on_step(self, record: StepRecord) -> None:
        if self._keeps_steps:
            self.steps.append(record)

    def on_request(self, record: RequestRecord) -> None:
        self.outcomes[record.request_id].record = record
        del self._arrivals[record.request_id]

    def _publish(self, deltas: list[Delta]) -> None:
        now_s = self.clock.now()
        self._intake.note(deltas, now_s)
        for delta in deltas:
            outcome = self.outcomes[delta.request_id]
            outcome.token_times_s += [now_s] * len(delta.token_ids)
            outcome.num_cached = delta.num_cached_tokens
            if delta.finish is not None:
                outcome.finish, outcome.finished_s = delta.finish, now_s
                self._on_end(outcome)


def _num_pending(request: Request) -> int:
    return request.num_pending
