"""Whether a rate will be certified in the time that is left, by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

from noria.bench.certificate import alpha_at_end, least_to_pass
from noria.tuning.chance import NOTHING, chance_to_pass
from noria.tuning.explore import Explorer
from noria.tuning.limits import Evidence, Limits
from noria.tuning.load import least_s, num_after_warm_up, with_warm_up
from noria.tuning.setting import Setting

_PART = 0.8  # of the time left: the machine may be slower than foretold, and the next try needs time, too
_LIKELY = 0.75  # the chance from which on a rate is worth the time
# The limit is known to some percent, and beyond it nothing passes: a rate has to be likely if it is this much nearer.
_NEARER = 1.05
# That are simulated, to ask of one rate: of more it would take the probes' own time. (Where a load has to last longer
# than they do, for the limit of its TTFT, it is that long.)
_LEAST_REQUESTS, _MOST_REQUESTS = 600, 3000


class Foresight:
    """left_s: until everything has to be over. What was simulated once of a setting and a share is kept."""

    def __init__(self, explorer: Explorer, left_s: Callable[[], float], limits: Limits) -> None:
        self._explorer = explorer
        self._left_s = left_s
        self._limits = limits
        self._known: dict[tuple[Setting, float], dict[str, Evidence]] = {}

    def least_rate(self, confidence: float) -> float:
        """Requests a second. At a lower rate fewer come in the time than are certain if none of them is late."""
        left_s = _PART * self._left_s()
        return (
            with_warm_up(least_to_pass(self._limits.share, confidence)) / left_s if left_s > 0 else math.inf
        )

    def is_likely(self, setting: Setting, share: float, rate: float, confidence: float) -> bool:
        """rate: requests a second on the machine, which is this share of what the setting can take there. Simulated at
        the same share of what it can take in the simulation, so that it matters little where that errs."""
        count = num_after_warm_up(int(_PART * max(0.0, self._left_s()) * rate))
        if count < least_to_pass(self._limits.share, confidence) or count / rate < least_s(
            self._limits.ttft_s
        ):
            return False
        found = self._evidence(setting, share, count)
        alpha = alpha_at_end(self._limits.share, confidence, count)
        return bool(found) and all(self._chance(one, count, alpha) >= _LIKELY for one in found.values())

    def _chance(self, one: Evidence, count: int, alpha: float) -> float:
        effective = count * one.num_effective / max(1, one.num_decided)
        return chance_to_pass(NOTHING, effective, one, self._limits.share, alpha)

    def _evidence(self, setting: Setting, share: float, count: int) -> dict[str, Evidence]:
        key = setting, share
        if key not in self._known:
            most = min(max(count, _LEAST_REQUESTS), _MOST_REQUESTS)
            self._known[key] = self._explorer.evidence_at(setting, _NEARER * share, most)
        return self._known[key]
