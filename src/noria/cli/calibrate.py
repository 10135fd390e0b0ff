"""`noria calibrate`: measured steps in, a step model out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from noria import __version__
from noria.cli.loading import load
from noria.config.calibrating import CalibrateOptions
from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError
from noria.config.extras import require
from noria.core.clock import MonotonicClock
from noria.engine.messages import StepRecord


def run(options: CalibrateOptions) -> int:
    require("scipy", "capacity", "noria calibrate")
    from noria.capacity.model_file import check_writable

    asked = options.calibration
    check_writable(asked.output)
    config, runs = _read(asked.from_log) if asked.from_log else measure(options)
    learn(config, runs, asked.output)
    return 0


def learn(config: EngineConfig, runs: Sequence[Sequence[StepRecord]], output: str) -> None:
    """A step model of these steps into a file, and what it is worth onto the terminal. Raises ConfigError."""
    from noria.capacity.fit import MeasuredStep, fit_steps
    from noria.capacity.measured import measured_steps
    from noria.capacity.model_file import Calibration, save
    from noria.config.hardware import processor_name

    steps: list[MeasuredStep] = [step for records in runs for step in measured_steps(records)]
    fit = fit_steps(steps)
    machine = f"{processor_name()}, {config.num_threads} threads"
    save(Calibration(config, fit.model, fit.num_steps, fit.mape, fit.bias, __version__, machine), output)
    print(
        f"learnt from {fit.num_steps} steps; of steps it had not seen, it foretold each within "
        f"{100 * fit.mape:.1f} % on average, and all together within {100 * abs(fit.bias):.1f} %"
    )
    print(f"step model: {output}")


def _read(paths: Sequence[str]) -> tuple[EngineConfig, list[Sequence[StepRecord]]]:
    from noria.capacity.run_file import read_run

    runs = [read_run(path) for path in paths]
    first = runs[0].config
    for path, run_ in zip(paths, runs, strict=True):
        if _comparable(run_.config) != _comparable(first):
            raise ConfigError(
                f"{path} is of other settings than {paths[0]}: noria calibrate learns one model at a time"
            )
    return first, [run_.steps for run_ in runs]


def _comparable(config: EngineConfig) -> EngineConfig:
    """Without what is timed anew at each start."""
    scheduler = replace(config.scheduler, step_cost=None, max_num_batched_tokens=1)
    return replace(config, scheduler=scheduler)


def measure(options: CalibrateOptions) -> tuple[EngineConfig, list[Sequence[StepRecord]]]:
    """The settings of an engine that ran in this process, and its steps. Raises ModelError, ConfigError."""
    from noria.capacity.probing import levels, probe

    kept = _Steps()
    with load(options.engine) as llm:
        llm.client.recorder.add_listener(kept)
        config = llm.resolved.config
        stages = levels(config, 60 * options.calibration.minutes)
        with _bar() as progress:
            probe(llm.client, config, stages, MonotonicClock(), progress)
    return config, [kept.records]


class _Steps:
    """A RecordListener that keeps every step."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)

    def on_request(self, record: object) -> None:
        """Steps alone are learnt from."""


@contextmanager
def _bar() -> Iterator[Callable[[float], None]]:
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from noria.offline.bars import share_bar

    with share_bar("Measuring steps") as progress:
        yield progress
