"""Every held-out load is simulated with what was known before it, and both are laid side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.accuracy.figures import figures, highest_rate, margin
from benchmarks.accuracy.foretelling import Foreteller, foreteller
from benchmarks.accuracy.loads import SETTINGS, WORKLOADS, Held, play_of
from benchmarks.accuracy.measured import load
from noria.bench.play import Play
from noria.capacity.foretold import foretold
from noria.capacity.workers import Workers

_HINDSIGHT_RUNS = 9
_LIMIT_SHARE = 0.74  # of capacity: limits are what is foretold there, times:
_LIMIT_FACTORS = {"TTFT P95": 1.5, "TPOT P95": 1.15}


@dataclass(frozen=True, slots=True)
class Judged:
    """A held-out load. real, simulated: by figure; the second are those of each simulation. in_hindsight: of each
    simulation of a machine that is as fast at each moment as it turned out to be: what is wrong there is the fault of
    the simulation, not of the machine. drift: that was known before; own_drift: that of its own steps, which nobody
    knew. speed: simulated seconds a second."""

    held: Held
    rate: float
    num_requests: int
    num_bad: int
    real: dict[str, float]
    simulated: dict[str, tuple[float, ...]]
    in_hindsight: dict[str, tuple[float, ...]]
    drift: float
    own_drift: float
    speed: float

    def middle(self, name: str) -> float:
        return float(np.median(self.simulated[name]))

    def error(self, name: str) -> float:
        return self.middle(name) / self.real[name] - 1

    def error_in_hindsight(self, name: str) -> float:
        return float(np.median(self.in_hindsight[name])) / self.real[name] - 1

    def interval(self, name: str) -> tuple[float, float]:
        found = foretold(self.simulated[name])
        return found.low, found.high

    def is_covered(self, name: str) -> bool:
        low, high = self.interval(name)
        return low <= self.real[name] <= high


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest rate of a setting at which the limits hold, requests a second.

    is_inside: the real and the simulated one both lie between the rates that were measured. in_hindsight: of loads
    simulated with the speed that the machine turned out to have.
    """

    workload: str
    setting: str
    limits: dict[str, float]
    real: float
    simulated: float
    in_hindsight: float
    is_inside: bool

    @property
    def error(self) -> float:
        return self.simulated / self.real - 1

    @property
    def error_in_hindsight(self) -> float:
        return self.in_hindsight / self.real - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """points: each measured load. highest: by workload and setting. regrets: by workload, what the setting that the
    simulation prefers loses against the better one; also of one that knows the machine's speed."""

    points: tuple[Judged, ...]
    highest: tuple[Highest, ...]
    regrets: dict[str, float]
    regrets_in_hindsight: dict[str, float]


def judge(directory: Path, points: Sequence[Held], num_runs: int, console: Console) -> Verdict:
    """Of the points whose loads have been measured."""
    there = [held for held in points if held.file(directory).exists()]
    foretellers: dict[str, Foreteller] = {}
    judged = []
    for held in there:
        log = load(held.file(directory)).log
        if log not in foretellers:
            foretellers[log] = foreteller(directory, log)
            console.print(f"{held.setting}: {foretellers[log].words()}")
        judged.append(_judged(foretellers[log], held, directory, num_runs))
        console.print(
            f"{held}: " + ", ".join(f"{name} {judged[-1].error(name):+.1%}" for name in judged[-1].real)
        )
    highest = [found for name in WORKLOADS if (found := highest_of(judged, name))]
    flat = tuple(one for several in highest for one in several)
    by_forecast = {several[0].workload: regret(several, lambda one: one.simulated) for several in highest}
    later = {several[0].workload: regret(several, lambda one: one.in_hindsight) for several in highest}
    return Verdict(tuple(judged), flat, by_forecast, later)


def _judged(by: Foreteller, held: Held, directory: Path, num_runs: int) -> Judged:
    measured = load(held.file(directory))
    assert measured.rate is not None and measured.seconds is not None
    play = play_of(held.workload, measured.rate, measured.seconds)
    by = by.as_of(measured.origin_s)
    drift = by.drift(measured.origin_s)
    start_s = time.perf_counter()
    # 0 is the likeliest model: others may be the true one as well.
    runs, simulated_s = _several(by, play, range(1, num_runs + 1), drift)
    speed = simulated_s / (time.perf_counter() - start_s)
    given, _ = _several(by.hindsight(measured), play, range(1, _HINDSIGHT_RUNS + 1), 0.0)
    return Judged(
        held,
        measured.rate,
        len(measured.outcomes),
        sum(not one.is_ok for one in measured.outcomes),
        figures(measured.outcomes),
        {name: tuple(run[name] for run in runs) for name in runs[0]},
        {name: tuple(run[name] for run in given) for name in given[0]},
        drift,
        by.own_drift(measured.origin_s, measured.end_s),
        speed,
    )


def _several(
    by: Foreteller, play: Play, seeds: Sequence[int], drift: float
) -> tuple[list[dict[str, float]], float]:
    """Figures of each simulation, and how many seconds were simulated."""

    def work(seed: int) -> tuple[dict[str, float], float]:
        outcomes = by.outcomes(play, seed, drift)
        return figures(outcomes), max(one.end_s for one in outcomes)

    with Workers(work, seeds) as workers:
        found = list(workers.results())
    return [told for told, _ in found], sum(seconds for _, seconds in found)


def highest_of(judged: Sequence[Judged], workload: str) -> list[Highest]:
    """One for each setting, where both have been measured at all rates. Limits are the same for both."""
    first = [one for one in judged if one.held.workload == workload and one.held.number == 0]
    series = {setting: [one for one in first if one.held.setting == setting] for setting in SETTINGS}
    if any(len(points) < 3 for points in series.values()):
        return []
    limits = _limits(series)
    found = []
    for setting, points in series.items():
        rates = [one.rate for one in points]
        real, real_inside = highest_rate(rates, [margin(one.real, limits) for one in points])
        middles = [{name: one.middle(name) for name in limits} for one in points]
        simulated, inside = highest_rate(rates, [margin(middle, limits) for middle in middles])
        later = [{name: float(np.median(one.in_hindsight[name])) for name in limits} for one in points]
        in_hindsight, _ = highest_rate(rates, [margin(one, limits) for one in later])
        found.append(
            Highest(workload, setting, limits, real, simulated, in_hindsight, real_inside and inside)
        )
    return found


def _limits(series: Mapping[str, Sequence[Judged]]) -> dict[str, float]:
    at = [min(points, key=lambda one: abs(one.held.share - _LIMIT_SHARE)) for points in series.values()]
    return {
        name: factor * float(np.mean([one.middle(name) for one in at]))
        for name, factor in _LIMIT_FACTORS.items()
    }


def regret(of: Sequence[Highest], rate: Callable[[Highest], float]) -> float:
    """rate: by which a setting is chosen."""
    return max(one.real for one in of) / max(of, key=rate).real - 1
