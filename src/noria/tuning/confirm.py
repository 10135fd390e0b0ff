"""Stage B: the likeliest settings on the real engine, as long as there is time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from noria.bench.certificate import LEAST_TO_JUDGE, Verdict, spent
from noria.config.engine import EngineConfig
from noria.config.errors import NoriaError
from noria.tuning.bias import Bias, shifted
from noria.tuning.explore import Explored
from noria.tuning.final import Ladder
from noria.tuning.max_rate import Ended, MaxRate, SearchOptions, conclude, find_max_rate, monotone_margins
from noria.tuning.probe import CertainProber, Prober, ProbeResult, judged_by_figures
from noria.tuning.same_engine import OtherEngine
from noria.tuning.setting import Setting

_SCREENING = SearchOptions(precision=0.10, most_probes=4)
_MOST_FINAL = 6

# A real server with a setting: screening by its figures, and one that promises nothing that is not certain.
OpenProbers = Callable[[Setting], AbstractContextManager[tuple[Prober, CertainProber]]]


class Foresees(Protocol):
    """What the time that is left suffices for."""

    def least_rate(self, confidence: float) -> float:
        """Requests a second: at less, too few come to be certain of anything."""
        ...

    def is_likely(self, setting: Setting, share: float, rate: float, confidence: float) -> bool:
        """Whether it will be certified at a share of its limit, which is so many requests a second."""
        ...


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A setting on the real engine. estimate: requests a second. final: of the chosen one, the certified search."""

    setting: Setting
    simulated: float
    rate: MaxRate
    estimate: float
    final: MaxRate | None = None

    @property
    def is_certified(self) -> bool:
        """Whether a rate passed with certainty. What passed while settings were ranked is no promise."""
        return self.final is not None and self.final.best is not None

    def has_failed_at_most(self, rate: float) -> bool:
        """Whether this rate, or less, was too much for it."""
        return any(one.verdict is Verdict.FAIL and one.rate <= rate for one in self.settled.probes)

    @property
    def settled(self) -> MaxRate:
        """What all probes say. passed: a certified rate; where there is none, one that kept the limits by its figures
        and that nothing has refuted. A certified one lies well below the limit: where that is foretold to be, and what
        its edge is like, is told by the others, too."""
        if self.final is None:
            return self.rate
        final, ended = self.final.probes, self.final.ended
        refuted = [one for one in _failures(self.rate.probes) if one.rate <= self.final.passed]
        screened = [one for one in self.rate.probes if one not in refuted]
        whole = conclude([*screened, *map(judged_by_figures, final)], ended)
        if not self.is_certified:
            return whole
        estimate = whole.estimate if whole.failed < math.inf else max(whole.estimate, self.estimate)
        certain = conclude([*final, *_failures(screened)], ended)
        return replace(certain, estimate=estimate, shape=whole.shape)

    @property
    def limit(self) -> float:
        """The estimate, where it is not known by now to be too much, or too little."""
        return max(
            min(self.estimate, self.settled.failed), self.final.passed if self.final is not None else 0.0
        )

    @property
    def bias(self) -> float:
        """log(real / simulated)."""
        return math.log(self.estimate / self.simulated)


def _failures(probes: Iterable[ProbeResult]) -> list[ProbeResult]:
    return [one for one in probes if one.verdict is Verdict.FAIL]


@dataclass(frozen=True, slots=True)
class Candidate:
    explored: Explored
    config: EngineConfig


class Confirmer:
    """confirmed: what was measured, by setting. broken: settings that the engine did not start with, or
    broke with, and why.

    confidence: that no rate is certified at which a limit is missed, however many rates and settings are tried. Of the
    error that it leaves, each try spends a part, as each look of a sequential certificate does.
    """

    def __init__(
        self,
        open_probers: OpenProbers,
        can_go_on: Callable[[], bool],
        tell: Callable[[str], None],
        confidence: float,
        foresight: Foresees,
    ) -> None:
        self.confirmed: dict[Setting, Confirmed] = {}
        self.broken: dict[Setting, str] = {}
        self._open_probers = open_probers
        self.can_go_on = can_go_on
        self._tell = tell
        self._configs: dict[Setting, EngineConfig] = {}
        self._confidence = confidence
        self._foresight = foresight
        self._num_certain = 0  # probes that were to be certain

    @property
    def bias(self) -> Bias:
        return Bias([(self._configs[one.setting], one.bias) for one in self.confirmed.values()])

    def screen(self, candidates: Sequence[Candidate]) -> None:
        """In this order, those that are not known yet."""
        for one in candidates:
            setting = one.explored.setting
            if setting in self.confirmed or setting in self.broken or self._is_hopeless(one.config):
                continue
            if not self.can_go_on():
                return
            self._configs[setting] = one.config
            self._screen(one)

    def _is_hopeless(self, config: EngineConfig) -> bool:
        """Whether an engine broke that took less."""
        return any(_takes_less(self._configs[broken], config) for broken in self.broken)

    def _screen(self, one: Candidate) -> None:
        explored = one.explored
        assert explored.rate is not None
        start = explored.rate.estimate * math.exp(self.bias.log_ratio(one.config))
        self._tell(f"measuring {explored.setting.words()}, foretold {start:.3g} requests/s")
        rate: MaxRate | None = None
        with self._breakage_noted(explored.setting), self._open_probers(explored.setting) as (screening, _):
            rate = find_max_rate(screening, start, replace(_SCREENING, can_go_on=self.can_go_on))
        if rate is None or all(probe.num_requests < LEAST_TO_JUDGE for probe in rate.probes):
            return  # it broke, or the time was over first
        estimate = _estimate(rate, explored.rate)
        self.confirmed[explored.setting] = Confirmed(explored.setting, explored.rate.estimate, rate, estimate)

    def certify(self, setting: Setting) -> None:
        """Certified probes: a rate that is sure to be certain in the time left, then higher ones as long as there is
        time. An engine that breaks meanwhile is noted as broken; what was probed before counts. Raises OtherEngine."""
        one = self.confirmed[setting]
        probes: list[ProbeResult] = []
        with self._breakage_noted(setting), self._open_probers(setting) as (_, certified):
            self._climb(setting, certified, probes)
        if not probes:
            return
        has_passed = any(probe.verdict is Verdict.PASS for probe in probes)
        ended = Ended.PRECISE if has_passed else Ended.TIME
        self.confirmed[setting] = replace(one, final=conclude(probes, ended))

    def _climb(self, setting: Setting, prober: CertainProber, probes: list[ProbeResult]) -> None:
        """Into probes."""
        ladder = Ladder(self.confirmed[setting].estimate)
        while len(probes) < _MOST_FINAL and (not probes or self.can_go_on()):
            confidence = self._next_confidence
            is_likely = partial(self._is_likely, setting, confidence)
            rate = ladder.next_rate(is_likely, self._foresight.least_rate(confidence))
            if rate is None:
                return
            self._tell(f"confirming {setting.words()} at {rate:.3g} requests/s")
            self._num_certain += 1
            probes.append(prober.certify(rate, confidence))
            ladder.learn(probes[-1])

    def _is_likely(self, setting: Setting, confidence: float, share: float, rate: float) -> bool:
        return self._foresight.is_likely(setting, share, rate, confidence)

    @contextmanager
    def _breakage_noted(self, setting: Setting) -> Iterator[None]:
        """Takes the error of an engine that does not start or breaks: the search goes on with others."""
        try:
            yield
        except OtherEngine:
            raise
        except NoriaError as error:
            self.broken[setting] = str(error)

    @property
    def _next_confidence(self) -> float:
        """Of the next probe that is to be certain."""
        return 1 - spent(1 - self._confidence, self._num_certain + 1)


def _estimate(rate: MaxRate, simulated: MaxRate) -> float:
    """Where the limit is met: between probes on both sides of it, or else as far from them as the simulation says."""
    if rate.passed and rate.failed < math.inf:
        return rate.estimate
    rates, margins = monotone_margins(simulated.probes)
    curve = list(zip(rates.tolist(), margins.tolist(), strict=True))
    nearest = min(rate.probes, key=lambda one: abs(one.margin))
    found = simulated.estimate * math.exp(shifted(curve, nearest.rate, nearest.margin))
    return min(max(found, rate.passed), rate.failed)


def _takes_less(one: EngineConfig, other: EngineConfig) -> bool:
    return (
        one.scheduler.max_num_seqs <= other.scheduler.max_num_seqs
        and one.scheduler.max_num_batched_tokens <= other.scheduler.max_num_batched_tokens
        and one.cache.block_size == other.cache.block_size
    )


def shortlist(
    ranked: Sequence[Explored], measured: Explored, boundary: Explored | None, most: int
) -> list[Explored]:
    """The settings as they were measured, the best by simulation, and the corner of the space: each once. The corner
    only where it decides otherwise than these: its bounds are reached then."""
    wanted = [measured, *ranked[:most]]
    if boundary is not None and boundary.same_as not in {one.setting for one in wanted}:
        wanted.append(boundary)
    unique = {one.setting: one for one in wanted if one.rate is not None}
    return list(unique.values())


def reranked(ranked: Sequence[Candidate], bias: Bias) -> list[Candidate]:
    """By the rate that is foretold once it is known how wrong the simulation is."""
    return sorted(ranked, key=lambda one: -one.explored.estimate * math.exp(bias.log_ratio(one.config)))
