"""Probes in virtual time: the real scheduler, steps that take the foretold time.

The load is finite and the same for all settings and rates, and so is how steps scatter: what differs between two probes
is the setting or the rate alone. So a probe's verdict is whether the limit was kept on this load, without chance, and
its uncertainty (of the load, not of the machine) is in the figures' intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from noria.bench.certificate import Verdict
from noria.bench.outcome import Outcome as BenchOutcome
from noria.bench.play import Play
from noria.bench.target import Sample
from noria.capacity.arrivals import Arrival
from noria.capacity.driving import Driver, bench_outcomes, samples
from noria.capacity.front import Front
from noria.capacity.model_file import Calibration
from noria.capacity.replica import Outcome
from noria.capacity.simulate import Deployment, simulate
from noria.core.outputs import FinishReason
from noria.engine.messages import StepRecord
from noria.tuning.figures import measure
from noria.tuning.limits import Evidence, ItlStat, Limits, evidence
from noria.tuning.load import TunedLoad, begin_s, num_warm_up
from noria.tuning.probe import ProbeResult

_AT_ONCE, _NUM_AT_ONCE = 1e6, 60  # requests a second, requests
_CLEARLY = 3.0  # times as many late ones as a limit allows: the rest of the load cannot change the verdict


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that ran at once, and the most tokens of a step."""

    num_running: int = 0
    num_step_tokens: int = 0

    def with_steps(self, steps: Iterable[StepRecord]) -> Peak:
        running, tokens = self.num_running, self.num_step_tokens
        for step in steps:
            running = max(running, step.num_running)
            tokens = max(tokens, step.num_prefill_tokens + step.num_decode_seqs)
        return Peak(running, tokens)


class SimulatedProber:
    """peak: over all probes so far; None once one was ended early, of which it is not known.

    num_requests: of the load.
    foreign_share: most steps of a probe that were outside of what was measured.
    """

    def __init__(self, calibration: Calibration, load: TunedLoad, limits: Limits, num_requests: int) -> None:
        """calibration: with the settings to be probed. Latencies are what a client of its front sees."""
        self.peak: Peak | None = Peak()
        self.foreign_share = 0.0
        self._front = calibration.front
        self._deployment = Deployment(calibration.config, calibration.model)
        self._load = load
        self._limits = limits
        self._num_requests = num_requests

    def probe(self, rate: float) -> ProbeResult:
        play = self._load.play(rate, self._num_requests)
        driver = Driver(play, self._load.seed, self._front)
        watch = _Watch(driver, play, self._limits, self._front)
        try:
            run = simulate(self._deployment, watch.first(), follow_up=watch.follow_up)
        except _ClearlyLateError:
            self.peak = None
            return self._result(rate, play, self._seen(watch.ended, play), [])
        self.foreign_share = max(self.foreign_share, run.foreign_share)
        if self.peak is not None:
            self.peak = self.peak.with_steps(run.steps[0])
        return self._result(rate, play, self._seen(run.outcomes, play), samples(run.steps[0]))

    def evidence(self, rate: float, count: int) -> dict[str, Evidence]:
        """Of so many requests; empty where so many were late that the simulation ended early."""
        play = self._load.lasting_play(rate, count, self._limits.ttft_s)
        watch = _Watch(Driver(play, self._load.seed, self._front), play, self._limits, self._front)
        try:
            run = simulate(self._deployment, watch.first(), keeps_steps=False, follow_up=watch.follow_up)
        except _ClearlyLateError:
            return {}
        return evidence(self._seen(run.outcomes, play), self._limits, begin_s=begin_s(play))

    def saturated_rate(self) -> float:
        """Requests answered a second when all of a part of the load come at once."""
        play = self._load.play(_AT_ONCE, min(self._num_requests, _NUM_AT_ONCE))
        driver = Driver(play, self._load.seed, self._front)
        run = simulate(self._deployment, driver.first(), keeps_steps=False, follow_up=driver.follow_up)
        return len(run.outcomes) / run.seconds

    def _seen(self, outcomes: Sequence[Outcome], play: Play) -> list[BenchOutcome]:
        return bench_outcomes(outcomes, play.requests, self._front)

    def _result(
        self, rate: float, play: Play, outcomes: list[BenchOutcome], states: list[Sample]
    ) -> ProbeResult:
        found = evidence(outcomes, self._limits, begin_s=begin_s(play))
        margins = {name: one.margin for name, one in found.items()}
        kept = all(_is_kept(one, self._limits.share) for one in found.values())
        worst = max(found.values(), key=lambda one: one.margin)
        return ProbeResult(
            rate,
            Verdict.PASS if kept else Verdict.FAIL,
            margins,
            len(outcomes),
            worst.num_effective,
            worst.bad,
            figures=measure(outcomes, states, self._limits, begin_s(play)),
            num_rounds=self._load.rounds(len(play.requests)),
        )


def _is_kept(one: Evidence, share: float) -> bool:
    return one.bad <= (1 - share) * one.num_effective


class _ClearlyLateError(Exception):
    """More are late already than the whole load may have."""


class _Watch:
    """Counts what is late, and ends the simulation once so much is that nothing to come can make up for it."""

    def __init__(self, driver: Driver, play: Play, limits: Limits, front: Front) -> None:
        self.ended: list[Outcome] = []
        self._driver = driver
        self._front = front
        self._limits = limits
        self._begin_s = begin_s(play)
        before = {index for _, index in play.due[: num_warm_up(play)]}
        counted = [one for one in play.requests if one.index not in before]
        allowed = _CLEARLY * (1 - limits.share)
        self._most_late = allowed * len(counted)
        self._most_late_gaps = allowed * sum(one.num_output - 1 for one in counted)
        self._num_late = self._num_late_gaps = 0

    def first(self) -> list[Arrival]:
        return self._driver.first()

    def follow_up(self, outcome: Outcome) -> Iterable[Arrival]:
        self.ended.append(outcome)
        self._count(outcome)
        return self._driver.follow_up(outcome)

    def _count(self, outcome: Outcome) -> None:
        arrival, times_s = outcome.arrival, outcome.token_times_s
        arrived_s = arrival.at_s - self._front.seconds(arrival.num_prompt)
        if arrived_s < self._begin_s:
            return
        is_ok = outcome.finish in (FinishReason.LENGTH, FinishReason.STOP) and times_s
        self._num_late += not is_ok or times_s[0] - arrived_s > self._limits.ttft_s
        if self._limits.itl_stat is ItlStat.POOLED:
            gaps = pairwise(times_s)
            self._num_late_gaps += sum(after - before > self._limits.itl_s for before, after in gaps)
        if self._num_late > self._most_late or self._num_late_gaps > self._most_late_gaps:
            raise _ClearlyLateError
