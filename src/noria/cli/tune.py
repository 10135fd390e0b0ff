"""`noria tune`: the settings that carry most of a load within its limits."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from noria.bench.files import run_directory
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.calibrating import CalibrateOptions, CalibrationOptions
from noria.config.errors import ConfigError, NoriaError
from noria.config.extras import require
from noria.config.option import as_flag, settings_of
from noria.config.parse import value_of
from noria.config.tuning import TuneOptions

if TYPE_CHECKING:
    from noria.capacity.model_file import Calibration
    from noria.tuning.tuner import Found, Job, Tell, Tuner

_WIDTH = 140  # of a table that is not shown on a terminal
_INTERRUPTED_STATUS = 130
_CALIBRATION_SHARE, _MOST_CALIBRATION_MINUTES = 0.25, 2.0
_MOST_REQUESTS = 3000  # of the workload, where requests are so short that a probe takes that many
_TITLES = ("noria tune", "what one change does, by simulation", "if the load is another, by simulation")


def run(options: TuneOptions) -> int:
    """Status 130 where it was interrupted, 1 where the engine refuted what was simulated; what was found is written
    all the same."""
    require("scipy", "capacity", "noria tune")
    asked = options.tuning
    if asked.ttft_ms is None and asked.itl_ms is None:
        raise ConfigError(
            "tune needs a limit: give --ttft-ms, --itl-ms or both, as in --ttft-ms 2000 --itl-ms 150"
        )
    directory = run_directory(options.result.out)
    job = _job(options, _calibration(options, directory), directory)
    found = _search(job, options.progress.progress)
    written = _write(found, options.workload, directory)
    console = Console()
    _show(found, console if console.is_terminal else Console(width=_WIDTH))
    print(f"{directory}: {', '.join(written)}", file=sys.stderr)
    return _INTERRUPTED_STATUS if found.is_interrupted else int(found.is_refuted)


def _calibration(options: TuneOptions, directory: Path) -> Calibration:
    """The step model that is stated, or one that is measured now."""
    from noria.capacity.model_file import load

    path = options.tuning.step_model
    if path is None:
        path = str(directory / "step_model.json")
        _learn(options, path)
    return load(path)


def _learn(options: TuneOptions, path: str) -> None:
    from noria.cli.calibrate import learn, measure

    minutes = min(_CALIBRATION_SHARE * options.tuning.minutes, _MOST_CALIBRATION_MINUTES)
    print(f"measuring how long steps take, for {60 * minutes:.0f} s", file=sys.stderr)
    learn(*measure(CalibrateOptions(options.engine, CalibrationOptions(path, minutes))), path)


def _job(options: TuneOptions, calibration: Calibration, directory: Path) -> Job:
    from noria.tuning.attempts import with_attempts
    from noria.tuning.limits import ItlStat, Limits
    from noria.tuning.load import make_load
    from noria.tuning.space import Space
    from noria.tuning.tuner import Job

    asked, scheduler, stated = options.tuning, calibration.config.scheduler, _stated(options)
    if asked.step_model is not None:
        _tell_differences(stated, calibration)
    limits = Limits(
        _seconds(asked.ttft_ms), _seconds(asked.itl_ms), asked.percentile / 100, ItlStat(asked.itl_stat)
    )
    rates = LoadOptions(burstiness=asked.burstiness, rate_scaling=asked.rate_scaling)
    most = max(asked.requests, asked.sim_requests, _MOST_REQUESTS)
    load = make_load(options.workload, rates, most, scheduler.max_model_len)
    target_ms = asked.itl_ms if scheduler.step_cost is not None else None
    space = with_attempts(Space(itl_slo_ms=target_ms), asked.attempt)
    return Job(calibration, load, limits, asked, space, stated, directory)


def _tell_differences(stated: Mapping[str, Any], calibration: Calibration) -> None:
    """Raises ConfigError where steps would take another time. Else the step model's settings hold."""
    from noria.tuning.setting import differences

    others = differences(stated, calibration.config)
    words = ", ".join(
        f"{as_flag(name)} {stated[name]} (it has {'no such' if then is None else then})"
        for name, then in others.items()
    )
    if others.keys() & {"quantization", "dtype", "kv_cache_dtype"}:
        raise ConfigError(
            f"the step model was measured with other settings: {words}; run noria calibrate with these"
        )
    if others:
        print(
            f"the step model was measured with other settings, which hold: {words}; --try tries others",
            file=sys.stderr,
        )


def _seconds(limit_ms: float | None) -> float:
    return math.inf if limit_ms is None else limit_ms / 1e3


def _stated(options: TuneOptions) -> dict[str, Any]:
    """Settings of the engine that are not as they would be anyway; those of an operating point are among them."""
    return {
        setting.name: value
        for setting in settings_of(type(options.engine))
        if setting.name != "operating_point"  # its settings are here one by one
        and not setting.about.secret
        and (value := _value(options.engine, setting.name)) != setting.default
    }


def _value(group: Any, name: str) -> Any:
    setting = next(one for one in settings_of(type(group)) if one.name == name)
    return value_of(group, setting)


def _search(job: Job, shows_progress: bool) -> Found:
    """Ctrl-C ends the search; what was found is reported. Raises NoriaError where that is nothing, and OtherEngine."""
    from noria.tuning.tuner import Tuner

    with _progress(shows_progress) as tell:
        tuner = Tuner(job, tell)
        try:
            tuner.explore()
            for stage in _later_stages(tuner):
                _attempt(stage, tuner)
        except KeyboardInterrupt:
            return tuner.found(is_interrupted=True)
        return tuner.found(is_interrupted=False)


def _later_stages(tuner: Tuner) -> Iterator[Callable[[], None]]:
    if not tuner.job.asked.simulate_only:
        yield tuner.confirm
    yield tuner.explain


def _attempt(stage: Callable[[], None], tuner: Tuner) -> None:
    """An error ends the stage and is reported: minutes of searching are not lost to it. Raises OtherEngine: on another
    engine everything that was found is of no use."""
    from noria.tuning.same_engine import OtherEngine

    try:
        stage()
    except OtherEngine:
        raise
    except NoriaError as error:
        tuner.faults.append(str(error))


@contextmanager
def _progress(is_shown: bool) -> Iterator[Tell]:
    """One bar on a terminal, drawn only when there is something to tell: a thread that draws would disturb the load."""
    console = Console(stderr=True)
    if not is_shown or not console.is_terminal:
        yield lambda words, share: None
        return
    words = TextColumn("{task.description}", table_column=Column(no_wrap=False))
    columns = (BarColumn(bar_width=20), words, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=1.0)
        last_s = 0.0

        def tell(words: str, share: float) -> None:
            nonlocal last_s
            bar.update(task, description=words, completed=share)
            if time.monotonic() - last_s > 0.1:
                bar.refresh()
                last_s = time.monotonic()

        yield tell


def _write(found: Found, workload: WorkloadOptions, directory: Path) -> list[str]:
    """The names of the files. There is no operating point where the engine refuted it."""
    from noria.tuning.files import write_json, write_point
    from noria.tuning.page import write_page

    stated = {
        setting.name: value_of(workload, setting)
        for setting in settings_of(WorkloadOptions)
        if value_of(workload, setting) != setting.default
    }
    write_json(found, directory / "tune.json")
    write_page(found, directory / "tune.html")
    if found.is_refuted:
        return ["tune.json", "tune.html"]
    write_point(found, stated, directory / "operating_point.json")
    return ["operating_point.json", "tune.json", "tune.html"]


def _show(found: Found, console: Console) -> None:
    from noria.tuning import words

    table = Table(title=_TITLES[0], caption=words.explored_words(found))
    for number, name in enumerate(words.HEADINGS):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in words.rows(found):
        table.add_row(*row, style="bold green" if row[-1] else "")
    console.print(table)
    for title, headings, lines in (
        (_TITLES[1], words.CHANGE_HEADINGS, words.sensitivity_rows(found)),
        (_TITLES[2], words.SHIFT_HEADINGS, words.shift_rows(found)),
    ):
        if lines:
            effects = Table(*headings, title=title)
            for line in lines:
                effects.add_row(*line)
            console.print(effects)
    console.print(words.headline(found), style="bold", highlight=False)
    for sentence in words.sentences(found):
        console.print(sentence, highlight=False)
    console.print(words.command(found), soft_wrap=True, highlight=False)
