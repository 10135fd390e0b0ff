"""Which rates are certified, in which order: first one that is sure to be certain in the time left, then higher ones.

Near the limit requests wait together, so that hundreds of them tell as much as a dozen; well below it a hundred are
enough. What a rate needs is foretold, and the highest one that the time suffices for is tried. A rate that does not
pass teaches that the limit is nearer than was believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from noria.bench.certificate import Verdict
from noria.tuning.probe import ProbeResult

# Of the limit: from just below it to less than half.
_SHARES = tuple(0.97 * 0.96**step for step in range(20))
_FAR, _FAR_DOWN = math.log(1.5), 0.75  # beyond the limit by so much, the limit is lower still
_ROOM = 1.08  # times a rate that passed the limit may be, as long as nothing above it has failed
_PRECISION = 0.03  # a rate that is higher by less is not worth another try

# Whether a rate, given as its share of the limit and in requests a second, will be certified in the time left.
IsLikely = Callable[[float, float], bool]


class Ladder:
    """limit: requests a second, where the limits are believed to be just kept. passed: the highest that did."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.passed = 0.0
        self._has_missed = False

    def learn(self, probe: ProbeResult) -> None:
        if probe.verdict is Verdict.PASS:
            self.passed = max(self.passed, probe.rate)
            if not self._has_missed:
                self.limit = max(self.limit, _ROOM * probe.rate)
            return
        self._has_missed = True
        self.limit = min(self.limit, probe.rate * (_FAR_DOWN if probe.margin > _FAR else 1.0))

    def next_rate(self, is_likely: IsLikely, least: float = 0.0) -> float | None:
        """The highest that is likely. Where none is: the lowest from `least` on, or none once a rate has passed.

        least: requests a second; at a lower rate too few would come in the time. Where all are lower: the highest.
        """
        rates = [(share, share * self.limit) for share in _SHARES]
        rates = [one for one in rates if one[1] > (1 + _PRECISION) * self.passed]
        enough = [one for one in rates if one[1] >= least]
        # What a rate takes grows with it, so the likely ones are the last: [0, low) are not, [high, len(enough)) are.
        low, high = 0, len(enough)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if is_likely(*enough[middle]) else (middle + 1, high)
        if high < len(enough):
            return enough[high][1]
        if self.passed or not rates:
            return None
        return enough[-1][1] if enough else rates[0][1]
