"""Real servers, one candidate at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noria.config.engine import EngineConfig
from noria.tuning.limits import Limits
from noria.tuning.load import TunedLoad
from noria.tuning.probe import CertainProber, Prober
from noria.tuning.real import Effort, RealProber, Screened
from noria.tuning.same_engine import check_same
from noria.tuning.server_child import server_info, serving
from noria.tuning.setting import Setting, serve_arguments, serve_options

_SCREENING_CONFIDENCE = 0.8
_SCREENING_CHANCE = 0.5  # of being certain: below, its figures have to do


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds until screening, and until everything real, has to be over."""

    screening_left_s: Callable[[], float]
    left_s: Callable[[], float]


class RealEngine:
    """measured: the settings that steps were measured with. stated: options of `noria serve` for all candidates.
    most_screening: requests of a probe to rank by.

    fingerprints: of the servers, by candidate.
    """

    def __init__(
        self,
        measured: EngineConfig,
        stated: Mapping[str, Any],
        load: TunedLoad,
        limits: Limits,
        most_screening: int,
        directory: Path,
    ) -> None:
        self.fingerprints: dict[Setting, dict[str, Any]] = {}
        self._measured = measured
        self._stated = stated
        self._load = load
        self._limits = limits
        self._most_screening = most_screening
        self._directory = directory

    @contextmanager
    def opened(
        self, setting: Setting, times: Times, effort: Effort
    ) -> Iterator[tuple[Prober, CertainProber]]:
        """A server with a candidate: one prober to rank by, one whose verdicts are certain.

        Raises EngineError where it does not start, OtherEngine where it is not what was simulated.
        """
        config = setting.config(self._measured)
        log = self._directory / f"serve-{len(list(self._directory.glob('serve-*.log'))) + 1}.log"
        quick = replace(
            effort,
            most_requests=self._most_screening,
            confidence=min(_SCREENING_CONFIDENCE, effort.confidence),
            time_left_s=times.screening_left_s,
            least_chance=_SCREENING_CHANCE,
        )
        with serving(serve_arguments(serve_options(self._stated, config)), log) as url:
            self.note(setting, server_info(url))
            probers = [RealProber(url, self._load, self._limits, one) for one in (quick, effort)]
            yield Screened(probers[0]), probers[1]

    def note(self, setting: Setting, fingerprint: dict[str, Any]) -> None:
        """What a candidate's server tells of itself. Raises OtherEngine, and keeps nothing, where it is another."""
        check_same(setting.config(self._measured), fingerprint.get("settings", {}))
        self.fingerprints[setting] = fingerprint

    def fingerprint_of(self, setting: Setting) -> Mapping[str, Any]:
        """What its server told; where it had none, what every candidate has: the model. Empty without any server."""
        models = ({"model": one["model"]} for one in self.fingerprints.values() if "model" in one)
        return self.fingerprints.get(setting) or next(models, {})
