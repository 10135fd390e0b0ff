"""What is known before a held-out load is sent: a step model, what HTTP costs, and how fast the machine is."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.accuracy.loads import saturating_play
from benchmarks.accuracy.measured import Measured, load_several
from noria.bench.outcome import Outcome
from noria.bench.play import Play
from noria.capacity.driving import Driver, bench_outcomes
from noria.capacity.fit import Fit, MeasuredStep, fit_steps
from noria.capacity.front import Front, Passage, fit_front, passages
from noria.capacity.measured import measured_steps
from noria.capacity.noise import Noise, measured_noise
from noria.capacity.simulate import Deployment, simulate
from noria.capacity.step_model import Regime, StepModel
from noria.config.engine import EngineConfig
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.run_log import EndedEntry, EngineEntry, Entry, StepEntry

_FORGET_S = 300.0  # in which what was seen of the machine's speed comes to count a third
_NEAR_S = 1.0  # of an instant: steps that tell how fast the machine was then
_SATURATING_REQUESTS = 300
_READ_AT_ONCE = 4096  # steps


@dataclass(frozen=True, slots=True)
class Log:
    """A run log as far as it is needed. starts_s, collected_s: of the steps, in their order."""

    config: EngineConfig
    steps: list[MeasuredStep]
    starts_s: np.ndarray
    collected_s: np.ndarray
    requests: list[RequestRecord]

    def within(self, start_s: float, end_s: float) -> slice:
        low, high = np.searchsorted(self.starts_s, (start_s, end_s)).tolist()
        return slice(low, high)


def read_log(path: Path) -> Log:
    """Step by step: all records at once would take gigabytes."""
    decoder = msgspec.json.Decoder(Entry)
    config: EngineConfig | None = None
    records: list[StepRecord] = []
    steps: list[MeasuredStep] = []
    instants: list[tuple[float, float]] = []
    requests: list[RequestRecord] = []

    def settle() -> None:
        steps.extend(measured_steps(records))
        instants.extend((record.start_s, record.collected_s) for record in records)
        records.clear()

    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written
            entry = decoder.decode(line)
            if isinstance(entry, EngineEntry):
                config = entry.config
            elif isinstance(entry, StepEntry):
                records.append(entry.record)
                if len(records) == _READ_AT_ONCE:
                    settle()
            elif isinstance(entry, EndedEntry):
                requests.append(entry.record)
    settle()
    assert config is not None, f"{path} does not begin with settings"
    starts_s, collected_s = np.array(instants).T
    return Log(config, steps, starts_s, collected_s, requests)


def learnt_file(directory: Path, log: str) -> Path:
    return directory / f"{log.removesuffix('.jsonl')}-learnt.json"


def seen_by_both(log: Log, loads: Sequence[Measured]) -> list[Passage]:
    """The requests of all loads."""
    ends_s = dict(
        zip(
            log.collected_s.tolist(),
            (start_s + step.seconds for start_s, step in zip(log.starts_s.tolist(), log.steps, strict=True)),
            strict=True,
        )
    )
    found: list[Passage] = []
    for load in loads:
        records = [one for one in log.requests if load.origin_s <= one.accepted_s <= load.end_s]
        found += passages(load.outcomes, records, ends_s)
    return found


@dataclass(frozen=True, slots=True)
class Foreteller:
    """What was learnt of one server before the held-out loads.

    start_s: of the first load that was learnt from. level: logarithm of measured over foretold time of the very steps
    that were learnt from: what their scatter, which a simulation has too, comes to.
    """

    log: Log
    start_s: float
    fit: Fit
    front: Front
    level: float
    noise: Callable[[StepModel, int | None, int], Noise] = measured_noise

    def words(self) -> str:
        return (
            f"{self.fit.num_steps} steps learnt, each of others foretold within {self.fit.mape:.1%}, all within "
            f"{self.fit.bias:+.1%}; the machine's speed drifts by {self.fit.model.drift:.1%}; HTTP takes "
            f"{1e3 * self.front.request_s:.2f} ms a request and {1e6 * self.front.prompt_token_s:.2f} us a prompt token"
        )

    def as_of(self, until_s: float) -> Foreteller:
        """One that knows how much the machine's speed has differed in all loads up to then: those that were learnt from
        are too short to show it.
        """
        seen = fit_steps(self.log.steps[self.log.within(self.start_s, until_s)])
        return replace(self, fit=replace(self.fit, model=replace(self.fit.model, drift=seen.model.drift)))

    def capacity(self, workload: str) -> float:
        """Requests a second with all places taken, by simulation."""
        config = self.log.config
        play = saturating_play(workload, config.scheduler.max_num_seqs, _SATURATING_REQUESTS)
        ends = sorted(one.end_s for one in self.outcomes(play, None, 0.0))
        low, high = len(ends) // 4, len(ends) * 3 // 4
        return (high - low) / (ends[high] - ends[low])

    def outcomes(self, play: Play, seed: int | None, drift: float) -> list[Outcome]:
        """Of a simulation in which steps take exp(drift) times what was learnt."""
        driver = Driver(play, 0, self.front)
        deployment = Deployment(self.log.config, self.fit.model.times(math.exp(drift)), noise=self.noise)
        found = simulate(deployment, driver.first(), seed=seed, keeps_steps=False, follow_up=driver.follow_up)
        return bench_outcomes(found.outcomes, play.requests, self.front)

    def hindsight(self, measured: Measured) -> Foreteller:
        """One that knows what nobody could know before: how fast the machine was when, in that load.

        Every step is then as slow as one of the steps that the server made within a second of it, long ones more often
        than short ones, so that on average it is as slow as they were together. The step model is the likeliest,
        whatever the seed.
        """
        inside = self.log.within(measured.origin_s, measured.end_s)
        starts_s = self.log.starts_s[inside] - measured.origin_s
        model = replace(self.fit.model, refits=(), drift=0.0)
        measured_s = np.array([step.seconds for step in self.log.steps[inside]])
        foretold_s = np.array([model.seconds(step.features) for step in self.log.steps[inside]])
        return replace(
            self,
            fit=replace(self.fit, model=model),
            noise=lambda _, seed, replica: SeenSpeed(starts_s, measured_s, foretold_s, random.Random(seed)),
        )

    def drift(self, until_s: float) -> float:
        """Logarithm of measured over foretold time, of the steps before that instant; the latest count most."""
        place = int(np.searchsorted(self.log.starts_s, until_s))
        recent = slice(0, place)
        weights = np.exp((self.log.starts_s[recent] - until_s) / _FORGET_S)
        return _log_ratio(self, recent, weights)

    def own_drift(self, start_s: float, end_s: float) -> float:
        """Of the steps in that time: what nobody could know before."""
        inside = self.log.within(start_s, end_s)
        return _log_ratio(self, inside, np.ones(inside.stop - inside.start))


class SeenSpeed:
    """The noise of a machine whose speed is known. starts_s, measured_s, foretold_s: of real steps, in their order."""

    def __init__(
        self, starts_s: np.ndarray, measured_s: np.ndarray, foretold_s: np.ndarray, draw: random.Random
    ) -> None:
        self._starts_s: list[float] = starts_s.tolist()
        self._slowness: list[float] = (measured_s / foretold_s).tolist()
        self._before_s: list[float] = [0.0, *np.cumsum(foretold_s).tolist()]
        self._draw = draw

    def factor(self, regime: Regime, now_s: float) -> float:
        low = bisect_left(self._starts_s, now_s - _NEAR_S)
        high = bisect_right(self._starts_s, now_s + _NEAR_S)
        if low == high:  # the server did nothing then: the next step it made, or its last
            low = min(low, len(self._starts_s) - 1)
            high = low + 1
        place_s = self._draw.uniform(self._before_s[low], self._before_s[high])
        return self._slowness[min(bisect_right(self._before_s, place_s), high) - 1]


def _log_ratio(of: Foreteller, chosen: slice, weights: np.ndarray) -> float:
    steps = of.log.steps[chosen]
    measured = np.array([step.seconds for step in steps])
    foretold = np.array([of.fit.model.seconds(step.features) for step in steps])
    return float(np.log((weights @ measured) / (weights @ foretold))) - of.level


def foreteller(directory: Path, log: str) -> Foreteller:
    """Learns from the loads to learn from of that server, and from nothing that came later."""
    loads = load_several(learnt_file(directory, log))
    read = read_log(directory / log)
    start_s = loads[0].origin_s
    chosen = read.within(start_s, loads[-1].end_s)
    learnt = Foreteller(
        read, start_s, fit_steps(read.steps[chosen]), fit_front(seen_by_both(read, loads)), 0.0
    )
    return replace(learnt, level=_log_ratio(learnt, chosen, np.ones(chosen.stop - chosen.start)))
