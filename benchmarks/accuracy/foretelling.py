"""What is known before a held-out load is sent: a step model, what HTTP costs, and how fast the machine is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.accuracy.loads import saturating_play
from benchmarks.accuracy.measured import Measured, load_several
from noria.bench.outcome import Outcome
from noria.bench.play import Play
from noria.capacity.driving import Driver, bench_outcomes
from noria.capacity.fit import Fit, MeasuredStep, fit_steps
from noria.capacity.front import Front, Passage, fit_front
from noria.capacity.measured import measured_steps
from noria.capacity.simulate import Deployment, simulate
from noria.config.engine import EngineConfig
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.run_log import EndedEntry, EngineEntry, Entry, StepEntry

_FORGET_S = 20.0  # in which what was seen of the machine's speed comes to count a third
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


def passages(log: Log, loads: Sequence[Measured]) -> list[Passage]:
    """Requests of the log that are one of the client's: alike in length, and accepted next after they were sent."""
    waiting = sorted(log.requests, key=lambda record: record.accepted_s)
    found = []
    for sent_s, received_s, one in sorted(_sent(loads), key=lambda sent: sent[0]):
        lengths = (one.num_prompt, one.num_output)
        for place, record in enumerate(waiting):
            if record.accepted_s < sent_s or (record.num_prompt_tokens, record.num_output_tokens) != lengths:
                continue
            if record.first_token_s is not None and record.first_token_s <= received_s:
                made_s = _step_end_s(log, record.first_token_s)
                found.append(Passage(one.num_prompt, sent_s, record.accepted_s, made_s, received_s))
            del waiting[place]
            break
    return found


def _sent(loads: Sequence[Measured]) -> list[tuple[float, float, Outcome]]:
    return [
        (load.origin_s + one.sent_s, load.origin_s + one.first_s, one)
        for load in loads
        for one in load.outcomes
        if one.is_ok
    ]


def _step_end_s(log: Log, collected_s: float) -> float:
    place = int(np.searchsorted(log.collected_s, collected_s - 1e-9))
    return float(log.starts_s[place]) + log.steps[place].seconds


@dataclass(frozen=True, slots=True)
class Foreteller:
    """What was learnt of one server before the held-out loads."""

    log: Log
    fit: Fit
    front: Front

    def words(self) -> str:
        return (
            f"{self.fit.num_steps} steps learnt, each of others foretold within {self.fit.mape:.1%}, all within "
            f"{self.fit.bias:+.1%}; HTTP takes {1e3 * self.front.request_s:.2f} ms a request, "
            f"{1e6 * self.front.prompt_token_s:.2f} us a prompt token and {1e3 * self.front.answer_s:.2f} ms back"
        )

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
        deployment = Deployment(self.log.config, self.fit.model.times(math.exp(drift)))
        found = simulate(deployment, driver.first(), seed=seed, keeps_steps=False, follow_up=driver.follow_up)
        return bench_outcomes(found.outcomes, play.requests, self.front)

    def drift(self, until_s: float) -> float:
        """Logarithm of measured over foretold time, of the steps before that instant; the latest count most."""
        place = int(np.searchsorted(self.log.starts_s, until_s))
        recent = slice(max(0, place - 2000), place)
        weights = np.exp((self.log.starts_s[recent] - until_s) / _FORGET_S)
        return _log_ratio(self, recent, weights)

    def own_drift(self, start_s: float, end_s: float) -> float:
        """Of the steps in that time: what nobody could know before."""
        inside = self.log.within(start_s, end_s)
        return _log_ratio(self, inside, np.ones(inside.stop - inside.start))


def _log_ratio(of: Foreteller, chosen: slice, weights: np.ndarray) -> float:
    steps = of.log.steps[chosen]
    measured = np.array([step.seconds for step in steps])
    foretold = np.array([of.fit.model.seconds(step.features) for step in steps])
    return float(np.log((weights @ measured) / (weights @ foretold)))


def foreteller(directory: Path, log: str) -> Foreteller:
    """Learns from the loads to learn from of that server, and from nothing that came later."""
    loads = load_several(learnt_file(directory, log))
    read = read_log(directory / log)
    chosen = read.within(loads[0].origin_s, loads[-1].end_s)
    return Foreteller(read, fit_steps(read.steps[chosen]), fit_front(passages(read, loads)))
