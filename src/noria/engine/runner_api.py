"""The seam between the engine loop and whatever executes a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from noria.core.plan import StepPlan, StepResult

if TYPE_CHECKING:
    from noria.sampling.token_masks import Masks

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

    def collect(self, pending: Pending, masks: Masks | None = None) -> StepResult:
        """Wait for the step and return what it sampled.

        masks: which tokens its requests may choose, made while it computed; None: all of them any.
        """
        ...

    def shutdown(self) -> None:
        """Release threads and memory. Nothing may be launched afterwards."""
        ...
