"""`noria simulate`: a load on engines that exist only as a step model and the real scheduler."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from noria.bench.files import run_directory, write_run
from noria.bench.html import write_html
from noria.bench.machine import describe_machine
from noria.bench.play import Play, make_play, num_requests
from noria.bench.result import Report, make_report
from noria.bench.run import RunResult
from noria.bench.table import render
from noria.bench.target import TargetFacts
from noria.bench.workload import Workload, make_workload
from noria.capacity.driving import Driver, bench_outcomes, samples
from noria.capacity.foretold import COVERAGE, foretold
from noria.capacity.model_file import Calibration, load
from noria.capacity.replay import replay
from noria.capacity.routing import router
from noria.capacity.run_file import read_run
from noria.capacity.simulate import Deployment, SimulatedRun, simulate
from noria.capacity.validation import Comparison, validate
from noria.capacity.what_if import with_changes
from noria.capacity.workers import Workers
from noria.config.benching import BenchOptions, LoadOptions
from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError
from noria.config.simulating import SimulateOptions

_WIDTH = 120  # of a table that is not shown on a terminal
_MOST_FOREIGN = 0.01  # share of steps outside of what was measured, before figures are doubted


@dataclass(frozen=True, slots=True)
class Simulated:
    """One simulation. report: of the likeliest alone; figures: of the others, which may be true as well."""

    report: Report | None
    figures: dict[str, float]
    seconds: float
    foreign_share: float


@dataclass(frozen=True, slots=True)
class Case:
    """One deployment under the load: the likeliest simulation first, then others."""

    name: str
    simulated: tuple[Simulated, ...]

    @property
    def report(self) -> Report:
        report = self.simulated[0].report
        assert report is not None
        return report

    @property
    def runs(self) -> list[dict[str, float]]:
        return [one.figures for one in self.simulated[1:]]

    @property
    def foreign_share(self) -> float:
        return max(one.foreign_share for one in self.simulated)


def run(options: SimulateOptions) -> int:
    """Status 1 where a validated run was decided otherwise than its simulation."""
    _check(options.load)
    calibration = load(options.simulation.step_model)
    console = _console()
    if options.simulation.validate is not None:
        return _validate(calibration, options.simulation.validate, options.simulation.runs, console)
    workload, play = _load(options, calibration.config)
    configs = {"as calibrated": calibration.config}
    if options.simulation.what_if:
        configs[", ".join(options.simulation.what_if)] = with_changes(
            calibration.config, options.simulation.what_if
        )
    directory = run_directory(options.result.out)
    start_s = time.perf_counter()
    cases = _cases(configs, calibration, workload, play, options)
    spent_s = time.perf_counter() - start_s
    for number, case in enumerate(cases):
        place = directory if number == 0 else run_directory(str(directory / "what-if"))
        write_run(case.report, place, False)
        write_html(case.report, place / "report.html")
        _show(case, console)
    console.print(_side_by_side(cases))
    simulated_s = sum(one.seconds for case in cases for one in case.simulated)
    console.print(f"simulated at {simulated_s / spent_s:.0f} times real time")
    console.print(f"results: {directory}")
    return 0


def _check(asked: LoadOptions) -> None:
    """Raise ConfigError for what is asked of a measurement's verdict: a simulation gives none."""
    stated = {
        "--until": asked.until is not None,
        "--slo-target": asked.slo_target != LoadOptions().slo_target,
    }
    for flag, is_stated in stated.items():
        if is_stated:
            raise ConfigError(
                f"{flag} is about the verdict of a measured run, and a simulation gives none: it runs all --requests, "
                "and tells with --slo which share of them keeps the limits"
            )


def _load(options: SimulateOptions, config: EngineConfig) -> tuple[Workload, Play]:
    count = num_requests(options.load, options.workload.trace is not None)
    workload = make_workload(options.workload, count, config.scheduler.max_model_len, None)
    return workload, make_play(workload, options.load, options.workload.bench_seed)


def _cases(
    configs: Mapping[str, EngineConfig],
    calibration: Calibration,
    workload: Workload,
    play: Play,
    options: SimulateOptions,
) -> list[Case]:
    """A progress bar goes on as simulations end."""
    tasks = [(name, seed) for name in configs for seed in range(options.simulation.runs + 1)]

    def work(task: tuple[str, int]) -> Simulated:
        name, seed = task
        return _simulated(replace(calibration, config=configs[name]), workload, play, options, seed)

    found: dict[str, list[Simulated]] = {name: [] for name in configs}
    is_shown = options.progress.progress
    with Workers(work, tasks) as workers, _progress(len(tasks), is_shown) as advance:
        for (name, _), one in zip(tasks, workers.results(), strict=True):
            found[name].append(one)
            advance()
    return [Case(name, tuple(several)) for name, several in found.items()]


def _simulated(
    calibration: Calibration, workload: Workload, play: Play, options: SimulateOptions, seed: int
) -> Simulated:
    asked = options.simulation
    driver = Driver(play, options.workload.bench_seed, calibration.front)
    found = simulate(
        Deployment(calibration.config, calibration.model, asked.replicas),
        driver.first(),
        router(asked.router),
        seed,
        keeps_steps=seed == 0,
        follow_up=driver.follow_up,
    )
    report = _report(found, calibration, workload, play, options)
    return Simulated(report if seed == 0 else None, _figures(report), found.seconds, found.foreign_share)


def _report(
    found: SimulatedRun, calibration: Calibration, workload: Workload, play: Play, options: SimulateOptions
) -> Report:
    config = calibration.config
    facts = TargetFacts(
        name=f"{config.model_name}, simulated",
        max_model_len=config.scheduler.max_model_len,
        is_noria=True,
        fingerprint={
            "engine": {"name": "noria", "version": calibration.engine_version, "form": "simulated"},
            "settings": config,
            "machine": {**describe_machine(), "calibrated": calibration.machine},
        },
    )
    result = RunResult(
        facts=facts,
        workload=workload.about(),
        requests=play.requests,
        outcomes=tuple(bench_outcomes(found.outcomes, play.requests, calibration.front)),
        samples=tuple(samples(found.steps[0])) if len(found.steps) == 1 else (),
        steps=(),
        certificate=None,
        started=time.time(),
        rate=play.rate,
        is_closed=play.is_closed,
        max_concurrency=play.max_concurrency,
        is_interrupted=False,
        source="simulated",
    )
    return make_report(
        result, BenchOptions(workload=options.workload, load=options.load, result=options.result)
    )


_COMPARED = ("ttft_slo", "tpot", "itl", "e2el_slo")


def _figures(report: Report) -> dict[str, float]:
    summary = report.summary
    told = {}
    for name in _COMPARED:
        if name in summary.figures:
            told[f"{name} mean ms"] = 1e3 * summary.figures[name].mean.value
            told[f"{name} P95 ms"] = 1e3 * summary.figures[name].quantiles[95].value
    told["output tokens/s"] = summary.output_throughput_total
    told["requests/s"] = summary.request_throughput
    if summary.attainment is not None:
        told["attainment %"] = 100 * summary.attainment
    return told


def _show(case: Case, console: Console) -> None:
    console.rule(case.name)
    for part in render(case.report):
        console.print(part)
    if case.foreign_share > _MOST_FOREIGN:
        console.print(
            f"[red]{case.foreign_share:.1%} of the steps lie outside of what was measured: "
            "calibrate under a load like this one before believing the figures[/red]"
        )


def _side_by_side(cases: Sequence[Case]) -> Table:
    num_runs = len(cases[0].runs)
    by = "one more simulation" if num_runs == 1 else f"{num_runs} more simulations"
    table = Table(title=f"what this load is foretold to come to{_interval_words(num_runs)}, by {by} of it")
    table.add_column("")
    for case in cases:
        table.add_column(case.name, justify="right")
    for name in cases[0].runs[0]:
        table.add_row(name, *(_range([run_[name] for run_ in case.runs if name in run_]) for case in cases))
    return table


def _range(values: Sequence[float]) -> str:
    if not values:
        return "-"
    found = foretold(values)
    return _with_interval(found.value, found.low, found.high)


def _with_interval(value: float, low: float, high: float) -> str:
    """Without one where nobody can tell it: low and high are NaN then."""
    return f"{value:.4g}" if math.isnan(low) else f"{value:.4g} [{low:.4g}, {high:.4g}]"


def _interval_words(num_runs: int) -> str:
    return f" [{COVERAGE:.0%} interval]" if num_runs > 1 else ""


def _validate(calibration: Calibration, path: str, num_runs: int, console: Console) -> int:
    recorded = read_run(path)
    decided = replay(recorded)
    if decided.difference is None:
        console.print(
            f"decisions: all {decided.num_steps} steps hold the same work when they are planned again"
        )
    else:
        console.print(f"[red]decisions: the first that differs is {decided.difference}[/red]")
    console.print(_comparison(validate(recorded, calibration.model, num_runs), num_runs))
    return 0 if decided.difference is None else 1


def _comparison(rows: Sequence[Comparison], num_runs: int) -> Table:
    table = Table(title="a real run and its simulation, by the engine's own records: seconds, tokens/s")
    table.add_column("")
    for heading in ("real", f"simulated{_interval_words(num_runs)}", "error"):
        table.add_column(heading, justify="right")
    for row in rows:
        error = f"{row.error:+.1%}" if row.real else f"{row.error:+.3g}"
        simulated = _with_interval(row.simulated, row.low, row.high)
        table.add_row(row.name, f"{row.real:.4g}", simulated, error)
    return table


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


@contextmanager
def _progress(total: int, is_shown: bool) -> Iterator[Callable[[], Any]]:
    with Progress(console=Console(stderr=True), transient=True, disable=not is_shown) as progress:
        task = progress.add_task("Simulating", total=total)
        yield lambda: progress.advance(task)
