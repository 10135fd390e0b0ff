"""`noria calibrate`: measured steps in, a step model out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from noria import __version__
from noria.bench.files import read_outcomes
from noria.capacity.front import NO_FRONT, Front, fit_front, passages
from noria.capacity.run_file import Run, read_run
from noria.cli.loading import load
from noria.cli.unused import tell_unused
from noria.config.asked import EngineOptions
from noria.config.calibrating import CalibrateOptions
from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError, NoriaError
from noria.config.extras import require
from noria.core.clock import MonotonicClock
from noria.engine.messages import StepRecord

_LARGE_SHARE = 0.25  # of the time, for steps larger than the settings' own


def run(options: CalibrateOptions) -> int:
    require("scipy", "capacity", "noria calibrate")
    from noria.capacity.model_file import check_writable

    asked = options.calibration
    check_writable(asked.output)
    if len(asked.from_bench) > len(asked.from_log):
        raise ConfigError("from_bench is what was seen while a log was written: give its log with --from-log")
    recorded = [read_run(path) for path in asked.from_log]
    if recorded:
        tell_unused(options.engine, "logs tell what their server ran with")
        tell_unused(asked, "nothing is measured", used=("output", "from_log", "from_bench"))
    front = _front(recorded, asked.from_bench) if asked.from_bench else NO_FRONT
    config, runs = _steps_of(recorded, asked.from_log) if recorded else measure(options)
    learn(config, runs, asked.output, front)
    return 0


def learn(
    config: EngineConfig, runs: Sequence[Sequence[StepRecord]], output: str, front: Front = NO_FRONT
) -> None:
    """A step model of these steps into a file, and what it is worth onto the terminal. Raises ConfigError.

    front: what clients were found to wait for beside the engine.
    """
    from noria.capacity.fit import MeasuredStep, fit_steps
    from noria.capacity.measured import measured_steps
    from noria.capacity.model_file import Calibration, save
    from noria.config.hardware import processor_name

    steps: list[MeasuredStep] = [step for records in runs for step in measured_steps(records)]
    fit = fit_steps(steps)
    machine = f"{processor_name()}, {config.num_threads} threads"
    found = Calibration(
        config, fit.model, fit.num_steps, fit.mape, fit.bias, __version__, machine, front=front
    )
    save(found, output)
    print(
        f"learnt from {fit.num_steps} steps; of steps it had not seen, it foretold each within "
        f"{100 * fit.mape:.1f} % on average, and all together within {100 * abs(fit.bias):.1f} %"
    )
    print(f"its speed drifts by {100 * fit.model.drift:.1f} % from one part of the measurement to another")
    if front is not NO_FRONT:
        print(
            f"HTTP takes {1e3 * front.request_s:.2f} ms a request and {1e6 * front.prompt_token_s:.2f} us a token of "
            "its prompt"
        )
    print(f"step model: {output}")


def _steps_of(runs: Sequence[Run], paths: Sequence[str]) -> tuple[EngineConfig, list[Sequence[StepRecord]]]:
    first = runs[0].config
    for path, run_ in zip(paths, runs, strict=True):
        if _comparable(run_.config) != _comparable(first):
            raise ConfigError(
                f"{path} is of other settings than {paths[0]}: noria calibrate learns one model at a time"
            )
    return first, [run_.steps for run_ in runs]


def _front(runs: Sequence[Run], directories: Sequence[str]) -> Front:
    """Raises ConfigError where client and log have too few requests in common."""
    from noria.capacity.measured import step_ends_s

    found = []
    for directory, run_ in zip(directories, runs, strict=False):
        records = [one.record for one in run_.ended.values()]
        found += passages(read_outcomes(directory), records, step_ends_s(run_.steps))
    return fit_front(found)


def _comparable(config: EngineConfig) -> EngineConfig:
    """Without what is timed anew at each start."""
    scheduler = replace(config.scheduler, step_cost=None, max_num_batched_tokens=1)
    return replace(config, scheduler=scheduler)


def measure(options: CalibrateOptions) -> tuple[EngineConfig, list[Sequence[StepRecord]]]:
    """The settings of an engine that ran in this process, and its steps; where nobody stated how large steps may be,
    those of a second one, too, whose steps may be as large as any that noria tune tries. Raises ModelError,
    ConfigError."""
    seconds = 60 * options.calibration.minutes
    if options.engine.scheduler.max_num_batched_tokens is not None:
        config, steps = _measure_own(options.engine, seconds)
        return config, [steps]
    config, steps = _measure_own(options.engine, (1 - _LARGE_SHARE) * seconds)
    large = _measure_large(options.engine, config, _LARGE_SHARE * seconds)
    return config, [steps, large] if large else [steps]


def _measure_own(engine: EngineOptions, seconds: float) -> tuple[EngineConfig, list[StepRecord]]:
    from noria.capacity.probing import levels, probe

    kept = _Steps()
    with load(engine) as llm:
        llm.client.recorder.add_listener(kept)
        config = llm.resolved.config
        with _bar() as progress:
            probe(llm.client, config, levels(config, seconds), MonotonicClock(), progress)
    return config, kept.records


def _measure_large(engine: EngineOptions, config: EngineConfig, seconds: float) -> list[StepRecord]:
    """config: of the first engine. None where there is no larger step than that engine's. What could not be measured,
    for want of memory or otherwise, is told on standard error: what the first engine showed is worth keeping."""
    from noria.capacity.bursts import burst, bursts, wide_options

    kept, planned = _Steps(), bursts(config, seconds)
    fault: NoriaError | None = None
    while planned:
        try:
            with load(wide_options(engine, config, planned)) as llm, _bar() as progress:
                llm.client.recorder.add_listener(kept)
                burst(llm.client, config.model.vocab_size, planned, seconds, MonotonicClock(), progress)
            break
        except ConfigError as error:  # it does not fit: smaller steps take less memory
            fault, planned = error, planned[:-1]
        except NoriaError as error:
            fault = error
            break
    if fault is not None:
        most = max((sum(work.num_new for work in record.work) for record in kept.records), default=0)
        also = f"only up to {most} tokens" if most else "not at all"
        print(f"steps larger than the settings' own were measured {also}: {fault}", file=sys.stderr)
    return kept.records


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
