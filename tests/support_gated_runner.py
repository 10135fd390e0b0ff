"""A runner whose steps wait for the test: what is to go on meanwhile goes on, however long it takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from noria.core.plan import StepPlan, StepResult
from noria.sampling.token_masks import Masks
from support_ledger_runner import LedgerRunner


class GatedRunner(LedgerRunner):
    """Computes a step only when the test lets it.

    gate: released once for each step that may be computed. started: released as each step arrives at the gate.
    error: raised by the steps that are let on from now on.
    """

    def __init__(self, block_size: int = 4) -> None:
        super().__init__(block_size)
        self.gate = threading.Semaphore(0)
        self.started = threading.Semaphore(0)
        self.error: Exception | None = None

    @property
    def is_waiting(self) -> bool:
        """Every step that was let on is done."""
        return not self.gate.acquire(blocking=False) or bool(self.gate.release())

    async def step_until(self, condition: Callable[[], object]) -> None:
        """Let steps on one by one, so that whoever reads has read the news of one before the next."""
        while not condition():
            if self.is_waiting:
                self.gate.release(1)
            await asyncio.sleep(0.001)

    def collect(self, plan: StepPlan, masks: Masks | None = None) -> StepResult:
        self.started.release()
        assert self.gate.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return super().collect(plan, masks)
