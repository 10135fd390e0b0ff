"""The whole search, in stages that may each be cut short: what was found until then is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from typing import Any

from noria.capacity.model_file import Calibration
from noria.config.errors import NoriaError
from noria.config.tuning import TuningOptions
from noria.tuning.choice import Contender, Point, choose, pareto
from noria.tuning.confirm import Candidate, Confirmed, Confirmer, reranked, shortlist
from noria.tuning.explore import Explored, Explorer, explore
from noria.tuning.foresight import Foresight
from noria.tuning.limits import Limits
from noria.tuning.load import TunedLoad, covering_length
from noria.tuning.max_rate import Ended, MaxRate
from noria.tuning.probe import CertainProber, Prober
from noria.tuning.real import Effort
from noria.tuning.real_engine import RealEngine, Times
from noria.tuning.setting import Setting
from noria.tuning.shifts import Rival, Shifted, Shifts, shifted_loads
from noria.tuning.space import Space, neighbours
from noria.tuning.standing import Standing

_EXPLORE_UNTIL, _SCREEN_UNTIL, _CERTIFY_UNTIL = 0.3, 0.5, 0.95  # of the time
_SIMULATE_ONLY_UNTIL = 0.8
_MOST_SENSITIVITY_PROBES = 6
# Of a probe that is to be certain, should it need more than was foretold; the time left bounds it long before.
_MOST_REQUESTS = 20_000
_MOST_RIVALS = 3  # of the chosen setting, under other loads
_COVERED = 0.999  # of requests fit into max_model_len

Tell = Callable[[str, float], None]  # what is being done, and the share of it that is done


@dataclass(frozen=True, slots=True)
class Job:
    """stated: options of `noria serve` for all candidates. directory: where results go."""

    calibration: Calibration
    load: TunedLoad
    limits: Limits
    asked: TuningOptions
    space: Space
    stated: Mapping[str, Any]
    directory: Path


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One thing changed from the chosen setting. ratio: of the simulated rates; at_most: it may be less."""

    words: str
    ratio: float
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that is reported. chosen: with its rate; confirmed: on the real engine, by setting."""

    job: Job
    chosen: Contender
    chosen_rate: MaxRate
    is_real: bool
    explored: tuple[Explored, ...]
    confirmed: Mapping[Setting, Confirmed]
    broken: Mapping[Setting, str]
    front: tuple[Point, ...]
    points: tuple[Point, ...]
    sensitivities: tuple[Sensitivity, ...]
    shifts: tuple[Shifted, ...]
    fingerprint: Mapping[str, Any]
    seconds: float
    faults: tuple[str, ...] = ()
    is_interrupted: bool = False

    @property
    def is_certified(self) -> bool:
        """Whether the chosen rate was measured to be kept, with certainty."""
        return self.is_real and self.confirmed[self.chosen.setting].is_certified

    @property
    def is_refuted(self) -> bool:
        """Whether all there is is a simulation, and the engine missed the limits where it had foretold that they are
        kept: then it is no promise."""
        foretold = {one.setting: one.rate.passed for one in self.explored if one.rate is not None}
        return not self.is_real and any(
            one.has_failed_at_most(foretold[setting]) for setting, one in self.confirmed.items()
        )

    @property
    def max_model_len(self) -> int:
        scheduler = self.job.calibration.config.scheduler
        return self.chosen.setting.max_model_len or scheduler.max_model_len

    @property
    def num_rejected(self) -> int:
        """Of the workload's requests, those that are longer than the chosen setting takes."""
        return int((self.job.load.lengths > self.max_model_len).sum())

    @property
    def gain(self) -> float | None:
        """The chosen rate by that of the measured settings, both found in the same way."""
        if self.is_real and Setting() in self.confirmed:
            return self.confirmed[self.chosen.setting].limit / self.confirmed[Setting()].limit
        simulated = {one.setting: one.estimate for one in self.explored}
        measured = simulated.get(Setting(), 0.0)
        return simulated[self.chosen.setting] / measured if measured else None


@dataclass
class Tuner:
    """Call explore, confirm, explain in this order; each may be left out but the first, or be ended by an exception."""

    job: Job
    tell: Tell
    clock: Callable[[], float] = time.monotonic
    sensitivities: list[Sensitivity] = field(default_factory=list)
    shifts: list[Shifted] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # what ended a stage early

    def __post_init__(self) -> None:
        self._start_s = self.clock()
        self._doing = ""
        job = self.job
        self._explorer = Explorer(
            job.calibration,
            job.load,
            job.limits,
            job.asked.sim_requests,
            lambda: self._left_s(self._explore_until) > 0,
        )
        self._engine = RealEngine(
            job.calibration.config, job.stated, job.load, job.limits, job.asked.requests, job.directory
        )
        self._confirmer = Confirmer(
            self._opened,
            lambda: self._left_s(_SCREEN_UNTIL) > 0,
            self._begin,
            job.asked.confidence,
            Foresight(self._explorer, self._certify_left_s, job.limits),
        )

    def explore(self) -> None:
        """Stage A. Raises ConfigError where no setting keeps the limits."""
        explore(
            self._explorer,
            self.job.space,
            self._length,
            lambda done, total: self.tell("simulating settings", done / total),
        )

    def confirm(self) -> None:
        """Stage B: the likeliest, then what the bias makes likely, then the best of them with certainty."""
        ranked = self._explorer.ranked()
        measured = self._explorer.found[Setting()]
        corner = self._explorer.found.get(self._with_length(self.job.space.boundary()))
        listed = shortlist(ranked, measured, corner, self.job.asked.candidates)
        self._confirmer.screen([self._candidate(one) for one in listed])
        self._confirmer.screen(reranked([self._candidate(one) for one in ranked], self._confirmer.bias)[:1])
        self._confirmer.can_go_on = self._explorer.can_go_on = lambda: self._certify_left_s() > 0
        self._certify(self._real_contenders())

    def _certify(self, contenders: list[Contender]) -> None:
        """The best; where no rate of it can be certified, the next."""
        while contenders and self._confirmer.can_go_on():
            best = choose(contenders)
            self._confirmer.certify(best.setting)
            if self._is_certified(best.setting):
                return
            contenders.remove(best)

    def explain(self) -> None:
        """What every single change of the chosen setting would do, and of the load, by simulation."""
        self._explorer.can_go_on = lambda: self._left_s(1.0) > 0
        contenders = self._contenders()
        if not contenders:
            return
        chosen = choose(contenders).setting
        known = self._explorer.searched(chosen)
        base = known.rate
        if base is None or not base.estimate:
            return
        for words, setting in neighbours(chosen, self.job.calibration.config, self.job.space):
            if not self._explorer.can_go_on():
                return
            self.tell(f"simulating {words}", self._share())
            found = self._neighbour(setting, base.estimate)
            if found is not None:
                self.sensitivities.append(Sensitivity(words, *found))
        if not known.why_out:
            self._shift_load(chosen, base.estimate)

    def _shift_load(self, chosen: Setting, rate: float) -> None:
        """The chosen setting beside the best others by simulation, none of which is believed to be worth more."""
        job, can_go_on = self.job, self._explorer.can_go_on
        worth = self._worth(chosen, rate)
        others = [one for one in self._explorer.ranked()[:_MOST_RIVALS] if one.setting != chosen]
        rivals = [
            Rival(chosen, rate, worth),
            *(
                Rival(one.setting, one.estimate, min(worth, self._worth(one.setting, one.estimate)))
                for one in others
            ),
        ]
        shifts = Shifts(job.calibration, job.limits, self._explorer.num_requests, can_go_on)
        for words, load in shifted_loads(job.load):
            self.tell(f"simulating {words}", self._share())
            found = shifts.compare(words, load, rivals)
            if found is None:
                return
            self.shifts.append(found)

    def _worth(self, setting: Setting, simulated: float) -> float:
        """Requests a second: measured, or foretold by what is known of the simulation's bias."""
        known = self._confirmer.confirmed.get(setting)
        if known is not None:
            return known.limit
        return simulated * exp(self._confirmer.bias.log_ratio(setting.config(self.job.calibration.config)))

    def found(self, is_interrupted: bool) -> Found:
        """Raises NoriaError where nothing was found yet."""
        contenders = self._contenders()
        if not contenders:
            raise NoriaError("nothing was found yet")
        chosen = choose(contenders)
        points = self._points()
        confirmed = self._confirmer.confirmed
        is_real = bool(self._real_contenders())
        return Found(
            job=self.job,
            chosen=chosen,
            chosen_rate=self._rate_of(chosen.setting, is_real),
            is_real=is_real,
            explored=tuple(self._explorer.found.values()),
            confirmed=confirmed,
            broken=self._confirmer.broken,
            front=tuple(pareto(points)),
            points=tuple(points),
            sensitivities=tuple(self.sensitivities),
            shifts=tuple(self.shifts),
            fingerprint=self._engine.fingerprint_of(chosen.setting),
            seconds=self.clock() - self._start_s,
            faults=tuple(self.faults),
            is_interrupted=is_interrupted,
        )

    def _neighbour(self, setting: Setting, base: float) -> tuple[float, bool] | None:
        """Ratio of the rates, and whether it may be less; None where its rate was not found, or not in the time."""
        setting = setting.normal(self.job.calibration.config)
        known = self._explorer.found.get(setting)
        if known is None:
            try:
                known = self._explorer.search(setting, base, 0.05, _MOST_SENSITIVITY_PROBES)
            except NoriaError:
                return None  # it cannot be
        if known.rate is None or known.rate.ended is Ended.TIME:
            return None
        if known.why_out:
            return known.rate.failed / base, True
        return known.estimate / base, False

    def _contenders(self) -> list[Contender]:
        """Those on the real engine, if there are any; those that are certified, if there are any."""
        real = self._real_contenders()
        certified = [one for one in real if self._is_certified(one.setting)]
        return (
            certified
            or real
            or [
                Contender(one.setting, one.estimate, one.rate.best)
                for one in self._explorer.ranked()
                if one.rate is not None and one.rate.best is not None
            ]
        )

    def _real_contenders(self) -> list[Contender]:
        """Those that kept the limits at some rate; one that broke later only where there is no other."""
        found = []
        for setting, one in self._confirmer.confirmed.items():
            best = one.settled.best
            if best is not None:
                found.append(Contender(setting, best.rate if one.is_certified else one.limit, best))
        return [one for one in found if one.setting not in self._confirmer.broken] or found

    def _is_certified(self, setting: Setting) -> bool:
        return self._confirmer.confirmed[setting].is_certified

    def _rate_of(self, setting: Setting, is_real: bool) -> MaxRate:
        """From where the contender is: figures of the engine and of the simulation are never mixed."""
        if is_real:
            return self._confirmer.confirmed[setting].settled
        rate = self._explorer.found[setting].rate
        assert rate is not None
        return rate

    def _points(self) -> list[Point]:
        """Real probes, if there are any, else simulated ones."""
        real = [
            Point(setting, probe)
            for setting, one in self._confirmer.confirmed.items()
            for probe in (*one.rate.probes, *(one.final.probes if one.final is not None else ()))
        ]
        return real or [
            Point(one.setting, probe)
            for one in self._explorer.found.values()
            if one.rate is not None and one.same_as is None
            for probe in one.rate.probes
        ]

    def _candidate(self, one: Explored) -> Candidate:
        return Candidate(one, one.setting.config(self.job.calibration.config))

    def _opened(self, setting: Setting) -> AbstractContextManager[tuple[Prober, CertainProber]]:
        times = Times(lambda: self._left_s(_SCREEN_UNTIL), self._certify_left_s)
        effort = Effort(
            _MOST_REQUESTS, self.job.asked.confidence, self._certify_left_s, tell=self._tell_standing
        )
        return self._engine.opened(setting, times, effort)

    def _begin(self, words: str) -> None:
        """Something on the real engine, which from now on tells how far it is."""
        self._doing = words
        self.tell(words, self._share())

    def _tell_standing(self, standing: Standing) -> None:
        self.tell(f"{self._doing}: {standing.words()}", self._share())

    def _certify_left_s(self) -> float:
        return self._left_s(_CERTIFY_UNTIL)

    def _length(self, block_size: int) -> int | None:
        config = self.job.calibration.config
        needed = covering_length(self.job.load.lengths, _COVERED, block_size)
        return needed if needed < config.scheduler.max_model_len else None

    def _with_length(self, setting: Setting) -> Setting:
        config = self.job.calibration.config
        return replace(setting, max_model_len=self._length(config.cache.block_size)).normal(config)

    @property
    def _explore_until(self) -> float:
        return _SIMULATE_ONLY_UNTIL if self.job.asked.simulate_only else _EXPLORE_UNTIL

    def _left_s(self, share: float) -> float:
        """Until that share of the time is over."""
        return self._start_s + share * 60 * self.job.asked.minutes - self.clock()

    def _share(self) -> float:
        return min(1.0, (self.clock() - self._start_s) / (60 * self.job.asked.minutes))
