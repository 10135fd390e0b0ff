"""Stage A: every setting simulated, the hopeless ones by one probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, inf
from typing import NoReturn

from noria.bench.certificate import Verdict
from noria.capacity.model_file import Calibration
from noria.config.errors import ConfigError
from noria.tuning.limits import Evidence, Limits
from noria.tuning.load import LEAST_SPANS, TunedLoad
from noria.tuning.max_rate import Ended, MaxRate, SearchOptions, conclude, find_max_rate, next_rate
from noria.tuning.probe import ProbeResult, are_alike
from noria.tuning.setting import Setting
from noria.tuning.simulated import Peak, SimulatedProber
from noria.tuning.space import Space, decide_alike, feasible

_RACE = 0.9  # of the best rate so far: who misses the limits there is out
_START = 0.7  # of the rate at which requests are answered when all come at once
_NUM_REFINED = 3  # of the first round, that go on with other blocks
_MOST_BLIND_PROBES = 8  # of a setting, as long as none is known to keep the limits at any rate
_MOST_REQUESTS = 3000  # of a probe, where requests are so short that it would take more to last
_FINE = 0.02  # bracket of the finalists
_LATE = SearchOptions(precision=0.05, most_probes=8)  # of one that was out early, and matters all the same


@dataclass(frozen=True, slots=True)
class Explored:
    """A setting and its simulated rate. why_out: why it was not searched to the end; empty where it was.
    same_as: a setting whose every step it would have made alike, or that it makes no difference from."""

    setting: Setting
    rate: MaxRate | None
    why_out: str = ""
    same_as: Setting | None = None
    foreign_share: float = 0.0

    @property
    def estimate(self) -> float:
        """Requests a second; 0 for one that is out."""
        return 0.0 if self.rate is None or self.why_out else self.rate.estimate


class Explorer:
    """Simulates settings under one load. found: by setting, in the order in which they were tried.

    num_requests: of a probe; more where requests are so short that these would be over before a queue can grow.
    """

    def __init__(
        self,
        calibration: Calibration,
        load: TunedLoad,
        limits: Limits,
        num_requests: int,
        can_go_on: Callable[[], bool],
    ) -> None:
        self.found: dict[Setting, Explored] = {}
        self.calibration = calibration
        self._load = load
        self._limits = limits
        self._num_requests = num_requests
        self.can_go_on = can_go_on
        self._peaks: dict[Setting, Peak] = {}

    @property
    def num_requests(self) -> int:
        """Of a probe."""
        return self._num_requests

    @property
    def best(self) -> Explored | None:
        """So far, by the foretold rate."""
        ranked = self.ranked()
        return ranked[0] if ranked else None

    def ranked(self) -> list[Explored]:
        """Those that were searched, best first; of those between which there is no difference, only the first."""
        searched = [one for one in self.found.values() if one.estimate > 0 and one.same_as is None]
        return sorted(searched, key=lambda one: -one.estimate)

    def try_setting(self, setting: Setting, start: float) -> Explored:
        """start: requests a second, for a first search. What was tried before is not tried again."""
        setting = setting.normal(self.calibration.config)
        if setting not in self.found:
            self.found[setting] = self._tried(setting, start)
        return self.found[setting]

    def try_variant(self, base: Setting, variant: Setting) -> Explored:
        """base: a setting that was searched, and that may make no difference from it."""
        variant = variant.normal(self.calibration.config)
        if variant not in self.found:
            self.found[variant] = self._varied(base.normal(self.calibration.config), variant)
        return self.found[variant]

    def search(self, setting: Setting, start: float, precision: float, most_probes: int = 12) -> Explored:
        """In full, whatever the others did. Raises ConfigError for what cannot be."""
        prober = self._prober(setting)
        options = SearchOptions(precision, most_probes, self.can_go_on)
        known = self.found.get(setting)
        before = known.rate.probes if known is not None and known.rate is not None else ()
        return self._searched(setting, prober, find_max_rate(prober, start, options, before))

    def searched(self, setting: Setting) -> Explored:
        """As it was tried; one that was out early is searched now. Where the time is over first, it stays out."""
        known = self.found[setting]
        if known.rate is None or known.why_out in ("", _NO_RATE) or not self.can_go_on():
            return known
        start = next_rate(known.rate.probes, _LATE.precision) or known.rate.estimate
        found = self.search(setting, start, _LATE.precision, _LATE.most_probes)
        if found.rate is not None and found.rate.ended is Ended.TIME:
            return known
        self.found[setting] = replace(found, same_as=known.same_as)
        return self.found[setting]

    def saturated_rate(self) -> float:
        """Requests a second of the measured settings when nobody ever waits for a request to come. Settles how many
        requests a probe takes."""
        rate = self._prober(Setting()).saturated_rate()
        if self._limits.ttft_s < inf:
            lasting = ceil(2 * LEAST_SPANS * self._limits.ttft_s * rate)
            self._num_requests = max(self._num_requests, min(lasting, _MOST_REQUESTS))
        return rate

    def evidence_at(self, setting: Setting, share: float, count: int) -> dict[str, Evidence]:
        """What so many requests say of each limit at this share of the setting's highest rate; nothing where that is
        not known, or the limits are clearly missed."""
        known = self.searched(setting).rate
        if known is None or not known.estimate:
            return {}
        return self._prober(setting).evidence(share * known.estimate, count)

    def refine(self, one: Explored) -> Explored:
        """A finalist again, to a finer bracket."""
        assert one.rate is not None
        if one.rate.ended is Ended.PRECISE and one.rate.failed / one.rate.passed - 1 <= _FINE:
            return one
        fine = replace(self.search(one.setting, one.rate.estimate, _FINE, 16), same_as=one.same_as)
        self.found[one.setting] = fine
        return fine

    def _tried(self, setting: Setting, start: float) -> Explored:
        why = feasible(setting, self.calibration.config)
        if why:
            return Explored(setting, None, why)
        twin = self._twin(setting)
        if twin is not None:
            return replace(self.found[twin], setting=setting, same_as=twin)
        best = self.best
        prober = self._prober(setting)
        if best is None:
            options = SearchOptions(most_probes=_MOST_BLIND_PROBES, can_go_on=self.can_go_on)
            return self._searched(setting, prober, find_max_rate(prober, start, options))
        return self._raced(setting, prober, best.estimate, [])

    def _varied(self, base: Setting, variant: Setting) -> Explored:
        """Probed where the base was found to pass, and to fail: where nothing differs there, nothing does."""
        why = feasible(variant, self.calibration.config)
        if why:
            return Explored(variant, None, why)
        known, prober = self.found[base], self._prober(variant)
        assert known.rate is not None
        edges = [one for one in known.rate.probes if one.rate in (known.rate.passed, known.rate.failed)]
        seen = [prober.probe(one.rate) for one in edges]
        if all(are_alike(one, other) for one, other in zip(edges, seen, strict=True)):
            return replace(known, setting=variant, same_as=known.same_as or base)
        return self._raced(variant, prober, max(one.estimate for one in self.ranked()), seen)

    def _raced(
        self, setting: Setting, prober: SimulatedProber, best: float, seen: list[ProbeResult]
    ) -> Explored:
        """Searched, unless it misses its limits well below the best rate so far. seen: its probes."""
        if not any(one.verdict is Verdict.PASS and one.rate >= best * _RACE for one in seen):
            seen = [*seen, prober.probe(best * _RACE)]
            if seen[-1].verdict is Verdict.FAIL:
                why = f"misses the {seen[-1].binding.upper()} limit at {_RACE:.0%} of the best rate"
                return Explored(setting, conclude(seen, Ended.PROBES), why, None, prober.foreign_share)
        options = SearchOptions(can_go_on=self.can_go_on)
        return self._searched(setting, prober, find_max_rate(prober, best, options, seen))

    def _searched(self, setting: Setting, prober: SimulatedProber, rate: MaxRate) -> Explored:
        if prober.peak is not None:
            self._peaks[setting] = prober.peak
        return Explored(setting, rate, "" if rate.passed else _NO_RATE, None, prober.foreign_share)

    def _twin(self, setting: Setting) -> Setting | None:
        config = setting.config(self.calibration.config)
        for known, peak in self._peaks.items():
            if decide_alike(known.config(self.calibration.config), config, peak):
                return known
        return None

    def _prober(self, setting: Setting) -> SimulatedProber:
        calibration = replace(self.calibration, config=setting.config(self.calibration.config))
        return SimulatedProber(calibration, self._load, self._limits, self._num_requests)


_NO_RATE = "no rate was found at which it keeps the limits"


def explore(
    explorer: Explorer, space: Space, lengths: Callable[[int], int | None], tell: Callable[[int, int], None]
) -> list[Explored]:
    """The measured settings first, then the grid, then variants of its best. tell: done and planned settings.

    lengths: max_model_len for a block size, None to leave it.
    Returns the ranked ones, best first. Raises ConfigError where no setting keeps the limits at any rate.
    """
    measured = explorer.calibration.config
    planned = [_with_length(one, measured.cache.block_size, lengths) for one in space.first_round()]
    done = _try_all(explorer, [Setting(), *planned], 0, tell)
    best = [one.setting for one in explorer.ranked()[:_NUM_REFINED]]
    if not best:
        _complain(explorer)
    variants = [
        (base, _with_length(one, one.block_size or measured.cache.block_size, lengths))
        for base, one in space.second_round(best)
    ]
    _vary(explorer, variants, done, tell)
    for one in explorer.ranked()[:_NUM_REFINED]:
        explorer.refine(one)
    return explorer.ranked()


def _try_all(
    explorer: Explorer, settings: Sequence[Setting], done: int, tell: Callable[[int, int], None]
) -> int:
    """How many are done now. The very first is tried whatever the time."""
    total = done + len(settings)
    start = _START * explorer.saturated_rate() if done == 0 else 1.0
    for setting in settings:
        tell(done, total)
        if done and not explorer.can_go_on():
            break
        explorer.try_setting(setting, start)
        done += 1
    tell(done, total)
    return done


def _vary(
    explorer: Explorer,
    variants: Sequence[tuple[Setting, Setting]],
    done: int,
    tell: Callable[[int, int], None],
) -> None:
    """done: settings that were tried before."""
    for number, (base, variant) in enumerate(variants):
        tell(done + number, done + len(variants))
        if not explorer.can_go_on():
            return
        explorer.try_variant(base, variant)


def _with_length(setting: Setting, block_size: int, lengths: Callable[[int], int | None]) -> Setting:
    return replace(setting, max_model_len=lengths(block_size))


def _complain(explorer: Explorer) -> NoReturn:
    first = explorer.found[Setting()]
    probes = first.rate.probes if first.rate is not None else ()
    least = min(probes, key=lambda one: one.rate, default=None)
    if least is None:
        raise ConfigError(f"the settings of the step model cannot be simulated: {first.why_out}")
    if not explorer.can_go_on():
        raise ConfigError(
            "the time was over before a rate was found that keeps the limits: give it more --minutes"
        )
    raise ConfigError(
        f"no setting is foretold to keep the limits: at {least.rate:.3g} requests/s those of the step model miss the "
        f"{least.binding.upper()} limit by a factor of {exp(least.margin):.3g}; state a limit that is nearer to that"
    )
