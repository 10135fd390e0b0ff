"""How likely a load is to be certified once all of it has come, from what is known of loads like it.

Of how many trials are late in truth, trials that were seen say a beta distribution (Jeffreys' prior); of how many will
be among those to come, a beta-binomial one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaln, gammaln

from noria.bench.certificate import Counted, Trials
from noria.bench.stats import binomial_quantile

NOTHING = Trials(0.0, 0.0)
_PRIOR = 0.5


def chance_to_pass(had: Counted, num_ahead: float, alike: Counted, share: float, alpha: float) -> float:
    """Of one last look at an error of alpha, after so many more effective trials like those that are known."""
    before = math.floor(had.num_effective)
    total = math.floor(had.num_effective + max(0.0, num_ahead))
    allowed = most_bad(total, share, alpha) - math.ceil(had.bad)
    ahead = total - before
    if allowed < 0:
        return 0.0
    if allowed >= ahead:
        return 1.0
    late, kept = alike.bad + _PRIOR, alike.num_effective - alike.bad + _PRIOR
    bad = np.arange(allowed + 1)
    ways = gammaln(ahead + 1) - gammaln(bad + 1) - gammaln(ahead - bad + 1)
    return min(1.0, float(np.exp(ways + betaln(bad + late, ahead - bad + kept) - betaln(late, kept)).sum()))


def most_bad(count: int, share: float, alpha: float) -> int:
    """Of `count` trials, how many may be bad at the most for PASS; -1 where not even none may."""
    return binomial_quantile(alpha, count, 1 - share) - 1
