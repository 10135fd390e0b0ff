"""From settled settings to the scheduler and the loop that they describe: the same for live and simulated engines."""

from __future__ import annotations

from collections.abc import Callable

from noria.config.engine import EngineConfig
from noria.core.clock import Clock
from noria.core.kv import KVCacheManager
from noria.core.outputs import Delta
from noria.core.policies import choose_policies
from noria.core.scheduler import Scheduler
from noria.engine.loop import EngineLoop
from noria.engine.namespaces import namespaces
from noria.engine.records import Recorder
from noria.engine.runner_api import Runner
from noria.structured.api import Constraints


def make_scheduler(config: EngineConfig) -> Scheduler:
    return Scheduler(
        config.scheduler,
        choose_policies(config.scheduler),
        KVCacheManager(config.cache),
        config.model.eos_token_ids,
    )


def make_loop(
    config: EngineConfig,
    runner: Runner,
    clock: Clock,
    recorder: Recorder,
    publish: Callable[[list[Delta]], None],
    constraints: Constraints | None = None,
) -> EngineLoop:
    """publish: takes each step's deltas, before the next one is planned. constraints: None refuses what needs them."""
    scheduler = make_scheduler(config)
    return EngineLoop(scheduler, runner, clock, recorder, namespaces(config), publish, constraints)
