"""Open-loop load on an engine whose steps take made-up time: whole overloads in a second, exactly repeatable."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from noria.config.errors import OverloadError
from noria.core.clock import VirtualClock
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import Sampled, StepPlan, StepResult
from noria.engine.intake import Intake
from noria.engine.loop import EngineLoop
from noria.engine.messages import GenerateRequest
from noria.engine.namespaces import namespaces
from noria.engine.records import Recorder
from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import Masks
from support_engine import engine_config, make_scheduler

# Factor on a step's time, by step: how a machine is not always as fast as at other times.
Noise = Callable[[random.Random, int], float]


class TimedRunner:
    """Steps take 4 ms, 0.3 ms a prompt token and 2 ms a decode, more or less. All it ever samples is one token."""

    def __init__(self, clock: VirtualClock, noise: Noise, seed: int) -> None:
        self._clock = clock
        self._noise = noise
        self._random = random.Random(seed)

    def launch(self, plan: StepPlan) -> StepPlan:
        return plan

    def collect(self, plan: StepPlan, masks: Masks | None = None) -> StepResult:
        seconds = 0.004
        for work in plan.work:
            seconds += 0.002 if work.num_new == 1 else 0.0003 * work.num_new
        self._clock.advance(seconds * self._noise(self._random, plan.step))
        return StepResult(
            plan.step, tuple(Sampled(work.request_id, (7,)) for work in plan.work if work.samples)
        )

    def shutdown(self) -> None:
        """Nothing to stop."""


# Requests a second that are served when all 8 places are taken all the time: each takes 48 * 0.3 ms to read, and for 28
# tokens an eighth of a step of 4 + 8 * 2 ms.
CAPACITY = 1 / (48 * 0.0003 + 28 * 0.020 / 8)


@dataclass
class Outcome:
    sent_s: float
    timeout_s: float
    ended_s: float | None = None
    finish: FinishReason | None = None
    num_tokens: int = 0

    @property
    def is_good(self) -> bool:
        whole = self.finish in (FinishReason.STOP, FinishReason.LENGTH)
        return whole and self.ended_s is not None and self.ended_s <= self.sent_s + self.timeout_s


@dataclass
class Load:
    """An engine of 8 places and what was sent to it. is_guarded: requests that would be late are refused."""

    noise: Noise
    is_guarded: bool = True
    seed: int = 1
    refused: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = engine_config(
            num_blocks=512, block_size=16, max_num_seqs=8, max_num_batched_tokens=128, max_model_len=512
        )
        self.clock = VirtualClock()
        recorder = Recorder()
        runner = TimedRunner(self.clock, self.noise, self.seed)
        self.intake = Intake(config)
        recorder.add_listener(self.intake)
        self.loop = EngineLoop(
            make_scheduler(config), runner, self.clock, recorder, namespaces(config), self._publish
        )
        self._draw = random.Random(self.seed)
        self._number = 0

    def run(self, rate: float, seconds: float, timeout_s: float | None) -> float:
        """Poisson arrivals for that long, until all have ended; good requests a second."""
        start_s = at_s = self.clock.now()
        self.outcomes, self.refused = {}, 0
        while (at_s := at_s + self._draw.expovariate(rate)) < start_s + seconds:
            self._step_until(at_s)
            self._submit(at_s, timeout_s)
        while self.loop.has_work:
            self.loop.step()
        return sum(outcome.is_good for outcome in self.outcomes.values()) / seconds

    def _step_until(self, at_s: float) -> None:
        while self.clock.now() < at_s:
            if not self.loop.has_work:
                self.clock.advance(at_s - self.clock.now())
                return
            self.loop.step()

    def _submit(self, at_s: float, timeout_s: float | None) -> None:
        self._number += 1
        name = f"r{self._number}"
        prompt = tuple(self._draw.randrange(40) for _ in range(48))
        params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=self._draw.randint(8, 48))
        request = GenerateRequest(name, prompt, params, 0, timeout_s=timeout_s)
        begin_by_s = float("inf")
        if self.is_guarded:
            try:
                begin_by_s = self.intake.take([request], at_s)
            except OverloadError:
                self.refused += 1
                return
        self.outcomes[name] = Outcome(at_s, timeout_s or float("inf"))
        self.loop.add(request, at_s, begin_by_s)

    def _publish(self, deltas: list[Delta]) -> None:
        # A step's news goes out when the next one is launched, a moment after the step has ended.
        now_s = self.clock.now()
        self.intake.note(deltas, now_s)
        for delta in deltas:
            outcome = self.outcomes[delta.request_id]
            outcome.num_tokens += len(delta.token_ids)
            if delta.finish is not None:
                outcome.ended_s, outcome.finish = now_s, delta.finish
