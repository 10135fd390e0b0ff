"""A real engine whose steps take as long as a test says, or wait for it, and whose clock a test puts forward."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from noria.core.plan import StepPlan, StepResult
from noria.engine.in_process import InProcessClient
from noria.engine.runner_api import Runner
from noria.sampling.token_masks import Masks


class Steering:
    """A runner in front of another, and the clock of its engine. step_s: the least that a step takes.

    However fast the model and however slow the test: a request of N tokens runs for N * step_s at least.
    """

    def __init__(self, runner: Runner, step_s: float) -> None:
        self._runner = runner
        self._step_s = step_s
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._is_over = threading.Event()
        self._ahead_s = 0.0

    @property
    def progress(self) -> int:
        return self._runner.progress

    def launch(self, plan: StepPlan) -> Any:
        return self._runner.launch(plan)

    def collect(self, pending: Any, masks: Masks | None = None) -> StepResult:
        self._is_over.wait(self._step_s)
        self._goes_on.wait()
        return self._runner.collect(pending, masks)

    def shutdown(self) -> None:
        self._runner.shutdown()

    def now(self) -> float:
        return time.monotonic() + self._ahead_s

    def put_forward(self, seconds: float) -> None:
        """The clock: to the engine it is as if so much time had passed."""
        self._ahead_s += seconds

    @contextmanager
    def held(self) -> Iterator[None]:
        """No step ends while the block lasts."""
        self._goes_on.clear()
        try:
            yield
        finally:
            self._goes_on.set()

    def end(self) -> None:
        """Steps take what the model takes."""
        self._is_over.set()


@contextmanager
def steered(engine: InProcessClient, step_s: float) -> Iterator[Steering]:
    """For as long as the block lasts. The engine has nothing to do when it begins."""
    loop = engine._loop
    runner, clock = loop.runner, loop.clock
    steering = Steering(runner, step_s)
    loop.runner, loop.clock = steering, steering
    try:
        yield steering
    finally:
        steering.end()
        loop.runner, loop.clock = runner, clock
