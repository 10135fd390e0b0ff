"""An engine whose every step takes a while, as a model's does, without a model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from noria.core.clock import MonotonicClock
from noria.core.plan import StepPlan, StepResult
from noria.engine.in_process import InProcessClient
from noria.engine.loop import EngineLoop
from noria.engine.namespaces import namespaces
from noria.engine.records import Recorder
from noria.sampling.token_masks import Masks
from support_engine import engine_config, make_scheduler
from support_ledger_runner import LedgerRunner

VOCAB_SIZE = 500


def letters(request_id: str, tokens: Sequence[int]) -> int:
    """Never the end token."""
    return 70 + len(tokens) % 20


class PacedRunner(LedgerRunner):
    """Takes `step_s` for a step; no time at all once it is hurried."""

    def __init__(self, block_size: int, step_s: float) -> None:
        super().__init__(block_size, letters)
        self.hurried = threading.Event()
        self._step_s = step_s

    def collect(self, plan: StepPlan, masks: Masks | None = None) -> StepResult:
        self.hurried.wait(self._step_s)
        return super().collect(plan, masks)


def paced_engine(num_blocks: int = 64, step_s: float = 0.02, **scheduler: object) -> InProcessClient:
    """The real loop and scheduler, by the real clock. Blocks have four slots."""
    config = engine_config(num_blocks, **scheduler)
    config = replace(config, model=replace(config.model, vocab_size=VOCAB_SIZE))
    runner = PacedRunner(config.cache.block_size, step_s)
    return InProcessClient(
        lambda publish: EngineLoop(
            make_scheduler(config), runner, MonotonicClock(), Recorder(), namespaces(config), publish
        ),
        config,
    )
