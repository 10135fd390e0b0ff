"""The figures that are compared, of a measured or a simulated load alike, over all requests that were answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from noria.bench.outcome import Outcome
from noria.bench.stats import Values

# Share by which each may be off, as it was set as a goal.
GOALS = {
    "TPOT mean": 0.02,
    "E2E mean": 0.025,
    "TTFT P95": 0.08,
    "ITL P95": 0.05,
    "TTFT mean": 0.08,
    "TPOT P95": 0.05,
    "tokens/s": 0.02,
}


def figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Seconds, but for the last. TTFT and E2E from the instant at which a request was meant to be sent; ITL of all gaps
    between tokens."""
    answered = [one for one in outcomes if one.is_ok]
    tpots = np.array([one.tpot_s for one in answered if one.tpot_s is not None])
    ttfts = np.array([one.ttft_slo_s for one in answered])
    gaps = np.array([gap for one in answered for gap in one.token_gaps_s()])
    span_s = max(one.end_s for one in answered) - min(one.arrival_s for one in answered)
    return {
        "TPOT mean": float(tpots.mean()),
        "E2E mean": float(np.mean([one.e2el_slo_s for one in answered])),
        "TTFT P95": float(np.quantile(ttfts, 0.95)),
        "ITL P95": float(np.quantile(gaps, 0.95)),
        "TTFT mean": float(ttfts.mean()),
        "TPOT P95": float(np.quantile(tpots, 0.95)),
        "tokens/s": sum(one.num_output for one in answered) / span_s,
    }


def highest_rate(rates: Sequence[float], margins: Sequence[float]) -> tuple[float, bool]:
    """The rate at which the margin, a logarithm of a figure over its limit, goes through zero, and whether it does so
    between the rates at all; else the nearest of them. Margins are made to grow with the rate first (pool adjacent
    violators)."""
    order = np.argsort(rates)
    x, y = np.array(rates)[order], growing(np.array(margins)[order])
    if y[0] >= 0:
        return float(x[0]), False
    if y[-1] <= 0:
        return float(x[-1]), False
    place = int(np.argmax(y > 0))
    low, high = y[place - 1], y[place]
    return float(x[place - 1] + (x[place] - x[place - 1]) * -low / (high - low)), True


def growing(values: Values) -> Values:
    """The nearest series that never falls, by least squares."""
    sums: list[float] = []
    counts: list[int] = []
    for value in values.tolist():
        sums.append(value)
        counts.append(1)
        while len(sums) > 1 and sums[-2] / counts[-2] > sums[-1] / counts[-1]:
            sums[-2:], counts[-2:] = [sums[-2] + sums[-1]], [counts[-2] + counts[-1]]
    return np.repeat([total / count for total, count in zip(sums, counts, strict=True)], counts)


def margin(found: Mapping[str, float], limits: Mapping[str, float]) -> float:
    """Of the worst of the figures that have a limit: above 0 it is missed."""
    return max(float(np.log(found[name] / limit)) for name, limit in limits.items())
