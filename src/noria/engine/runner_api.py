"""The seam between the engine loop and whatever executes a plan."""

from __future__ import annotations

from typing import Any, Protocol

from noria.core.plan import StepPlan, StepResult

Pending = Any  # a runner's own handle on a launched step


class Runner(Protocol):
    """Executes plans, one at a time, in order. It obeys plans and never makes them.

    progress: moves as work does, if need be within a step; may be read from any thread.
    """

    @property
    def progress(self) -> int: ...

    def launch(self, plan: StepPlan) -> Pending:
        """Start the step and return at once; the interpreter stays free while it computes."""
        ...

    def collect(self, pending: Pending) -> StepResult:
        """Wait for the step and return what it sampled."""
        ...

    def shutdown(self) -> None:
        """Release threads and memory. Nothing may be launched afterwards."""
        ...
