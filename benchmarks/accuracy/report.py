"""The comparison as a table, and as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson

from benchmarks.accuracy.figures import GOALS, figures
from benchmarks.accuracy.judging import Judged, Verdict
from benchmarks.accuracy.measured import Measured

_SHOWN = ("TPOT mean", "E2E mean", "TTFT P95", "ITL P95")


def words_of(measured: Measured) -> str:
    found = figures(measured.outcomes)
    num_bad = sum(not one.is_ok for one in measured.outcomes)
    bad = f", {num_bad} failed" if num_bad else ""
    return (
        f"{len(measured.outcomes)} requests{bad}, TPOT mean {1e3 * found['TPOT mean']:.1f} ms, TTFT P95 "
        f"{1e3 * found['TTFT P95']:.0f} ms"
    )


def write_json(verdict: Verdict, path: Path) -> None:
    path.write_bytes(orjson.dumps(verdict, option=orjson.OPT_INDENT_2))


def markdown(verdict: Verdict) -> str:
    return "\n".join([*_overall(verdict), "", *_highest(verdict), "", *_points(verdict)])


def _overall(verdict: Verdict) -> Iterator[str]:
    """Each figure over all loads, beside what two measurements of one load differ by."""
    differences = spreads(verdict.points)
    heads = ("figure", "error, mean of sizes", "median", "worst", "bias", "goal", "within goal")
    more = ("real within interval", "two real runs differ by", "error in hindsight", "its bias")
    yield _row([*heads, *more])
    yield _row(["---"] * (len(heads) + len(more)))
    for name, goal in GOALS.items():
        errors = np.array([one.error(name) for one in verdict.points])
        sizes = np.abs(errors)
        covered = np.mean([one.is_covered(name) for one in verdict.points])
        spread = differences.get(name)
        later = np.array([one.error_in_hindsight(name) for one in verdict.points])
        yield _row(
            [
                name,
                f"{sizes.mean():.1%}",
                f"{np.median(sizes):.1%}",
                f"{sizes.max():.1%}",
                f"{errors.mean():+.1%}",
                f"{goal:.1%}",
                f"{np.mean(sizes <= goal):.0%}",
                f"{covered:.0%}",
                "-" if spread is None else f"{spread:.1%}",
                f"{np.abs(later).mean():.1%}",
                f"{later.mean():+.1%}",
            ]
        )
    yield ""
    speeds = [one.speed for one in verdict.points]
    drifts = [abs(one.own_drift - one.drift) for one in verdict.points]
    yield (
        f"Simulated at {np.median(speeds):.0f} times real time (median). Steps of a load took "
        f"{np.mean(drifts):.1%} more or less than what the steps before it foretold (mean of sizes, worst "
        f"{max(drifts):.1%}); by workload {', '.join(_drifts(verdict.points))}."
    )


def _drifts(points: Sequence[Judged]) -> Iterator[str]:
    """What the machine's drift does not explain if it is the same for all: the step model's own error."""
    for workload in dict.fromkeys(one.held.workload for one in points):
        found = np.array([one.own_drift - one.drift for one in points if one.held.workload == workload])
        error = found.std(ddof=1) / len(found) ** 0.5 if len(found) > 1 else float("nan")
        yield f"{workload} {found.mean():+.1%} +- {error:.1%}"


def spreads(points: Sequence[Judged]) -> dict[str, float]:
    """Mean size of the difference of two measurements of the same load, by figure."""
    pairs = [
        (one, other)
        for one in points
        for other in points
        if one.held.number == 0
        and other.held.number == 1
        and (one.held.workload, one.held.setting, one.held.share)
        == (other.held.workload, other.held.setting, other.held.share)
    ]
    if not pairs:
        return {}
    return {
        name: float(np.mean([abs(other.real[name] / one.real[name] - 1) for one, other in pairs]))
        for name in GOALS
    }


def _highest(verdict: Verdict) -> Iterator[str]:
    yield (
        "| workload | setting | limits | highest rate, real | simulated | error | in hindsight | error | regret "
        "of the choice | in hindsight |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in verdict.highest:
        limits = ", ".join(f"{name} {1e3 * limit:.0f} ms" for name, limit in one.limits.items())
        outside = "" if one.is_inside else " (end of the measured rates)"
        yield (
            f"| {one.workload} | {one.setting} | {limits} | {one.real:.2f}/s | {one.simulated:.2f}/s{outside} | "
            f"{one.error:+.1%} | {one.in_hindsight:.2f}/s | {one.error_in_hindsight:+.1%} | "
            f"{verdict.regrets[one.workload]:.1%} | {verdict.regrets_in_hindsight[one.workload]:.1%} |"
        )


def _points(verdict: Verdict) -> Iterator[str]:
    heads = [head for name in _SHOWN for head in (f"{name}, real ms", "simulated", "error")]
    yield _row(["load", "requests/s", *heads, "drift"])
    yield _row(["---"] * (3 + len(heads)))
    for one in verdict.points:
        cells = [cell for name in _SHOWN for cell in _cells(one, name)]
        yield _row([str(one.held), f"{one.rate:.2f}", *cells, f"{one.own_drift - one.drift:+.1%}"])


def _cells(one: Judged, name: str) -> tuple[str, str, str]:
    low, high = one.interval(name)
    simulated = f"{1e3 * one.middle(name):.1f} [{1e3 * low:.1f}, {1e3 * high:.1f}]"
    return f"{1e3 * one.real[name]:.1f}", simulated, f"{one.error(name):+.1%}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
