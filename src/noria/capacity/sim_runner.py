"""A runner that computes nothing: its steps take the time that a model foretells, on a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping

from noria.capacity.arrivals import Arrival
from noria.capacity.features import features_of
from noria.capacity.noise import Noise
from noria.capacity.step_model import Regime, StepModel
from noria.core.clock import VirtualClock
from noria.core.plan import Sampled, StepPlan, StepResult, Work


class SimRunner:
    """Satisfies noria.engine.runner_api.Runner.

    num_steps, num_foreign: steps so far, and those of them that lie outside of what the model was learnt from.
    """

    def __init__(
        self, model: StepModel, noise: Noise, clock: VirtualClock, arrivals: Mapping[str, Arrival]
    ) -> None:
        """arrivals: by request id, those that have been submitted; somebody else adds to it."""
        self.num_steps = 0
        self.num_foreign = 0
        self._model = model
        self._noise = noise
        self._clock = clock
        self._arrivals = arrivals

    @property
    def progress(self) -> int:
        return self.num_steps

    def launch(self, plan: StepPlan) -> StepPlan:
        return plan

    def collect(self, pending: StepPlan, masks: object = None) -> StepResult:
        if pending.work:
            self._take_time(pending.work)
        sampled = [
            Sampled(work.request_id, (self._token_after(work),)) for work in pending.work if work.samples
        ]
        return StepResult(pending.step, tuple(sampled))

    def shutdown(self) -> None:
        """There is nothing to stop."""

    def _take_time(self, work: tuple[Work, ...]) -> None:
        features = features_of(work)
        factor = self._noise.factor(Regime.of(features), self._clock.now())
        self._clock.advance(self._model.seconds(features) * factor)
        self.num_steps += 1
        self.num_foreign += not self._model.box.holds(features)

    def _token_after(self, work: Work) -> int:
        return self._arrivals[work.request_id].token_after(work.num_computed + work.num_new)
