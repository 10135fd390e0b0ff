"""Goodput under overload: requests that are answered whole within their deadline, from a quarter to ten times of
what the server can do.

    python -m benchmarks.overload [--quick] [--untold] [--output overload.json] [--plot docs/overload.svg]

Starts `noria serve` with the default model, measures its capacity with as many clients as it has places, then offers
Poisson arrivals at multiples of that, each with a deadline (three times what
a request takes at capacity) in X-Request-Timeout. --untold adds a series in which
nothing bounds the queue and the server is not told of deadlines; clients leave at theirs.

Client and server share the machine, so a load takes from goodput whatever a server does with it. What share of the
processors each of them had stands beside goodput, and how many answers in time there were for each second of a
processor that the client left. How much goodput the load itself takes, the second series tells: of the same loads the
server gets 1.5 times its capacity, and a decoy that answers all else with a constant the rest. Takes about nine minutes
with all series, --quick about two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.decoy import decoy
from benchmarks.flights import Flight, Outcome, Shot, message_of, shots
from benchmarks.noria_server import noria_server
from benchmarks.pictures import open_pyplot, save
from benchmarks.processors import Shares, clocks, shares_of

LOADS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 7.0, 10.0)
QUICK_LOADS = (0.5, 1.0, 3.0, 10.0)
OVERLOAD = 1.5  # from this load on; at 1x, chance decides how much is offered


@dataclass(frozen=True)
class Point:
    """What a load came to, at the server. Rates are requests a second; durations seconds.

    offered: to whomever; all else is of what the server got.
    """

    load: float
    offered: float
    goodput: float
    num_sent: int
    num_good: int
    num_refused: int  # 503 at once
    num_late: int  # 504, cut, or whole after the deadline
    refusal_p50_s: float
    refusal_p99_s: float
    answer_p99_s: float
    shares: Shares


@dataclass(frozen=True)
class Series:
    name: str
    points: list[Point]


@dataclass(frozen=True)
class Plan:
    """What is measured. told: whether the server knows of deadlines and bounds its queue."""

    loads: Sequence[float]
    seconds: float  # of arrivals, each load
    seed: int
    max_num_seqs: int
    deadline_s: float = 0.0
    told: bool = True


def main() -> None:
    arguments = _arguments()
    if arguments.plot:
        open_pyplot()  # missing, it is missed before anything is measured
    plan = Plan(
        QUICK_LOADS if arguments.quick else LOADS,
        8.0 if arguments.quick else arguments.seconds,
        arguments.seed,
        arguments.max_num_seqs,
    )
    console = Console()
    with noria_server(arguments_of(plan)) as port:
        capacity = uvloop.run(measure_capacity(port, plan))
        plan = replace(plan, deadline_s=round(arguments.patience * plan.max_num_seqs / capacity, 1))
        console.print(
            f"capacity: {capacity:.2f} requests/s with {plan.max_num_seqs} at once; deadline {plan.deadline_s:g} s"
        )
        series = [Series("deadlines told, queue bounded", run_loads(port, plan, capacity, console))]
        beyond = replace(plan, loads=[load for load in plan.loads if load > OVERLOAD])
        with decoy() as elsewhere:
            points = run_loads(port, beyond, capacity, console, elsewhere)
        series.append(Series(f"what is beyond {OVERLOAD:g}x goes to a decoy", points))
    if arguments.untold:
        untold = replace(plan, told=False)
        with noria_server(arguments_of(untold)) as port:
            uvloop.run(measure_capacity(port, untold))
            series.append(Series("no bounds, clients leave", run_loads(port, untold, capacity, console)))
    for one in series:
        console.print(table(one))
    for line in verdict(series[0].points, series[1].points):
        console.print(line)
    if arguments.output:
        about = {
            "capacity": capacity,
            "deadline_s": plan.deadline_s,
            "series": [asdict(one) for one in series],
        }
        arguments.output.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        plot(series, capacity, plan.deadline_s, arguments.plot)


def verdict(points: Sequence[Point], decoyed: Sequence[Point]) -> list[str]:
    """How much of its peak goodput keeps under overload, and of what the load itself leaves of it."""
    best = max(point.goodput for point in points)
    if not best:
        return [
            "nothing was answered in time at any load: the machine was too slow, or is busy with something else"
        ]
    best_left = max(point.num_good / point.shares.left_s for point in points)
    beside = {point.load: point.goodput for point in decoyed}
    lines = []
    for point in points:
        if point.load >= OVERLOAD:
            line = f"at {point.load:g}x goodput keeps {100 * point.goodput / best:.0f} % of its peak"
            if beside.get(point.load):
                share = 100 * point.goodput / beside[point.load]
                line += f", {share:.0f} % of what it is when the decoy gets the surplus"
            left = 100 * point.num_good / point.shares.left_s / best_left
            lines.append(f"{line}; for each second of a processor that the client left, {left:.0f} %")
    return lines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter loads")
    parser.add_argument("--untold", action="store_true", help="also measure without bounds and deadlines")
    parser.add_argument("--seconds", type=float, default=20.0, help="of arrivals, each load")
    parser.add_argument(
        "--patience", type=float, default=3.0, help="deadline, in times of a request at capacity"
    )
    parser.add_argument("--max-num-seqs", type=int, default=8, help="requests that run at once")
    parser.add_argument("--seed", type=int, default=1, help="draws arrivals, prompts and lengths")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--plot", type=Path, help="SVG or PNG file for the picture; takes matplotlib")
    return parser.parse_args()


def arguments_of(plan: Plan) -> list[str]:
    """Of the server."""
    arguments = ["--max-num-seqs", str(plan.max_num_seqs), "--max-model-len", "512"]
    if not plan.told:
        arguments += ["--max-num-queued-reqs", "1000000", "--max-num-queued-tokens", "1000000000"]
    return arguments


async def measure_capacity(port: int, plan: Plan) -> float:
    """Requests a second with all places taken all the time; the server learns its own pace meanwhile."""
    waiting = iter(shots(port, 10_000.0, 10.0, plan.seed + 1))
    seconds = max(6.0, plan.seconds / 2)
    start_s = time.perf_counter()
    ends: list[float] = []

    async def lane() -> None:
        while time.perf_counter() < start_s + seconds:
            flight = Flight(port, message_of(next(waiting), None))
            flight.begin(60.0)
            outcome = await flight.outcome
            assert outcome.status == 200, f"status {outcome.status} while nothing is overloaded"
            ends.append(time.perf_counter() - start_s)

    await asyncio.gather(*(lane() for _ in range(plan.max_num_seqs)))
    warm_s = seconds / 3
    return sum(warm_s <= end_s < seconds for end_s in ends) / (seconds - warm_s)


def run_loads(
    port: int, plan: Plan, capacity: float, console: Console, elsewhere: int | None = None
) -> list[Point]:
    """elsewhere: the port that gets what is beyond OVERLOAD times the capacity."""
    points = []
    for number, load in enumerate(plan.loads):
        seed = plan.seed + 100 * number
        here = load if elsewhere is None else OVERLOAD
        arriving = shots(port, here * capacity, plan.seconds, seed)
        if elsewhere is not None:
            arriving += shots(elsewhere, (load - here) * capacity, plan.seconds, seed + 50)
        before = clocks(port)
        outcomes = uvloop.run(play(arriving, plan))
        shares = shares_of(clocks(port).since(before), len(arriving))
        ours = [one for shot, one in zip(arriving, outcomes, strict=True) if shot.port == port]
        last = replace(point_of(load, ours, plan, shares), offered=len(arriving) / plan.seconds)
        points.append(last)
        console.print(
            f"{load:5.2f}x: {last.num_sent} sent, {last.num_good} in time, {last.num_refused} refused, "
            f"{last.num_late} late; goodput {last.goodput:.2f}/s; of the processors the client took "
            f"{shares.client:.1%}, the engine {shares.engine:.1%}, the API process {shares.api:.1%}"
        )
    return points


async def play(arriving: Sequence[Shot], plan: Plan) -> list[Outcome]:
    """Send each at its time, whatever has become of the others."""
    loop = asyncio.get_running_loop()
    told_s = plan.deadline_s if plan.told else None
    flights = [Flight(shot.port, message_of(shot, told_s)) for shot in arriving]
    start_s = loop.time() + 0.1
    for shot, flight in zip(arriving, flights, strict=True):
        loop.call_at(start_s + shot.at_s, flight.begin, _patience_s(plan.deadline_s, told_s))
    outcomes = [await flight.outcome for flight in flights]
    await asyncio.sleep(0.5)  # for what was cut to leave the server
    return outcomes


def _patience_s(deadline_s: float, told_s: float | None) -> float:
    """When a client closes its connection: half a second after a deadline that the server knows."""
    return deadline_s + (0.5 if told_s else 0.0)


def point_of(load: float, outcomes: Sequence[Outcome], plan: Plan, shares: Shares) -> Point:
    good = [one.seconds for one in outcomes if one.status == 200 and one.seconds <= plan.deadline_s]
    refused = [one.seconds for one in outcomes if one.status == 503]
    return Point(
        load=load,
        offered=len(outcomes) / plan.seconds,
        goodput=len(good) / plan.seconds,
        num_sent=len(outcomes),
        num_good=len(good),
        num_refused=len(refused),
        num_late=len(outcomes) - len(good) - len(refused),
        refusal_p50_s=quantile(refused, 0.5),
        refusal_p99_s=quantile(refused, 0.99),
        answer_p99_s=quantile(good, 0.99),
        shares=shares,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Of the values in order, the one that far along; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def table(series: Series) -> Table:
    columns = ("load", "offered/s", "goodput/s", "in time", "refused", "late")
    shown = Table(
        *columns,
        "refusal p50 ms",
        "p99 ms",
        "answer p99 s",
        "client %",
        "engine %",
        "API %",
        title=series.name,
    )
    for point in series.points:
        parts = (point.shares.client, point.shares.engine, point.shares.api)
        shown.add_row(
            f"{point.load:g}x",
            f"{point.offered:.2f}",
            f"{point.goodput:.2f}",
            str(point.num_good),
            str(point.num_refused),
            str(point.num_late),
            f"{1e3 * point.refusal_p50_s:.0f}",
            f"{1e3 * point.refusal_p99_s:.0f}",
            f"{point.answer_p99_s:.2f}",
            *(f"{100 * part:.1f}" for part in parts),
        )
    return shown


def plot(series: Sequence[Series], capacity: float, deadline_s: float, path: Path) -> None:
    pyplot = open_pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for one in series:
        loads, goodputs = [p.offered / capacity for p in one.points], [p.goodput for p in one.points]
        axes.plot(loads, goodputs, marker="o", label=one.name)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle="--")
    axes.set_xscale("log")
    ticks = (0.25, 0.5, 1, 2, 4, 10)
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"offered load (1x: {capacity:.1f} requests/s)")
    axes.set_ylabel(f"answered whole within {deadline_s:g} s, requests/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


if __name__ == "__main__":
    main()
