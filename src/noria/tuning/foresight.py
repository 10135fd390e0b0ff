"""Whether a rate will be certified in the time that is left, by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

from noria.tuning.explore import Explorer
from noria.tuning.load import with_warm_up
from noria.tuning.probe import least_to_pass
from noria.tuning.setting import Setting

_PART = 0.8  # of the time left: the machine may be slower than foretold, and the next try needs time, too
# That are simulated, to ask of one rate: what takes more is not likely. Of more it would take the probes' own time.
_MOST_REQUESTS = 3000


class Foresight:
    """left_s: until everything has to be over. share: that has to keep each limit."""

    def __init__(self, explorer: Explorer, left_s: Callable[[], float], share: float) -> None:
        self._explorer = explorer
        self._left_s = left_s
        self._share = share

    def least_rate(self, confidence: float) -> float:
        """Requests a second. At a lower rate fewer come in the time than are certain if none of them is late."""
        left_s = _PART * self._left_s()
        return with_warm_up(least_to_pass(self._share, confidence)) / left_s if left_s > 0 else math.inf

    def is_likely(self, setting: Setting, share: float, rate: float, confidence: float) -> bool:
        """rate: requests a second on the machine, which is this share of what the setting can take there. Simulated at
        the same share of what it can take in the simulation, so that it matters little where that errs."""
        most = min(int(_PART * self._left_s() * rate), _MOST_REQUESTS)
        return self._explorer.is_certified_within(setting, share, most, confidence)
