"""A latency target against every fixed size of steps, on long prompts among short chats.

    python -m benchmarks.latency_budget [--itl-slo-ms 100] [--seconds 90] [--rounds 3] [--share 0.9]
        [--output latency_budget.json] [--plot docs/latency_budget.svg]

Starts a `noria serve` with the default model for each setting (--itl-slo-ms; max_num_batched_tokens from 64 to 2048)
and gives each the same requests in the same order with `noria bench serve`: mostly chats, and prompts of 4,000 tokens.
A pilot on default settings finds how many requests take about --seconds; nothing is sent after three times that. By
default as many clients as --clients wait for an answer all the time, so every step is filled and slow settings show
in the throughput; with --share requests come by chance (Poisson) at that share of what the pilot did. Settings take
turns, --rounds times; medians count. Client and server share the machine, and nothing else should run on it.

Throughput is tokens a second, of prompts and answers, from the first request to the end of the last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from benchmarks.noria_bench import faults, noria_bench
from benchmarks.noria_server import noria_server
from benchmarks.peers.children import ChildFailed
from benchmarks.pictures import open_pyplot, save

BUDGETS = (64, 128, 256, 512, 1024, 2048)
LONG_PROMPT = 4000
LENGTHS = ("--prompt-tokens", f"64-256*0.94+{LONG_PROMPT}*0.06", "--output-tokens", "32-96")
MOST_TIMES = 3.0  # as long as planned may a load take
PILOT_REQUESTS = 48  # the fewest of a load, too
PILOT_LIMIT_S = 600.0


@dataclass(frozen=True)
class Setting:
    """of: a fixed number of tokens, or a target in milliseconds."""

    is_target: bool
    of: float

    @property
    def name(self) -> str:
        return f"{'itl_slo_ms' if self.is_target else 'max_num_batched_tokens'}={self.of:g}"

    @property
    def flags(self) -> list[str]:
        return ["--itl-slo-ms" if self.is_target else "--max-num-batched-tokens", f"{self.of:g}"]


@dataclass(frozen=True)
class Measured:
    """A load on one setting. Milliseconds, and tokens and requests a second. faults: what its checks say against it."""

    itl_p95_ms: float
    itl_mean_ms: float
    ttft_p95_ms: float
    throughput: float
    request_rate: float
    seconds: float
    is_cut: bool
    faults: tuple[str, ...]


@dataclass
class Series:
    """What a setting came to, round by round."""

    setting: Setting
    rounds: list[Measured]

    def median(self, figure: str) -> float:
        return statistics.median(getattr(one, figure) for one in self.rounds)

    def ends(self, figure: str) -> tuple[float, float]:
        values = [getattr(one, figure) for one in self.rounds]
        return min(values), max(values)


@dataclass(frozen=True)
class Plan:
    """What every setting gets. rate: of arrivals; None for a closed loop. seconds: that it took the pilot, about."""

    clients: int
    num_requests: int
    rate: float | None
    seconds: float
    seed: int

    @property
    def arguments(self) -> list[str]:
        load = (
            ["--max-concurrency", str(self.clients)] if self.rate is None else ["--rate", f"{self.rate:.4f}"]
        )
        ends = ["--requests", str(self.num_requests), "--duration", f"{MOST_TIMES * self.seconds:.1f}"]
        return [*LENGTHS, *load, *ends, "--bench-seed", str(self.seed)]

    @property
    def limit_s(self) -> float:
        """What a load may take with all that was sent in time: an overloaded server answers for as long again."""
        return 2 * MOST_TIMES * self.seconds + 120


def main() -> None:
    arguments = _arguments()
    if arguments.plot:
        open_pyplot()  # missing, it is missed before anything is measured
    console = Console(width=None if sys.stdout.isatty() else 120)
    settings = [Setting(True, target) for target in arguments.itl_slo_ms]
    settings += [Setting(False, budget) for budget in arguments.budgets]
    plan = pilot(arguments, console)
    series = [Series(setting, []) for setting in settings]
    for number in range(arguments.rounds):
        # The other way round in every second one, so that what drifts hits nobody more.
        for place, one in enumerate(series if number % 2 == 0 else series[::-1]):
            console.print(
                f"round {number + 1} of {arguments.rounds}, {place + 1} of {len(series)}: {one.setting.name} ...",
                end=" ",
            )
            measure(one, plan, console.print)
            if arguments.output:
                write(series, plan, arguments.output)
    told = [one for one in series if one.rounds]
    console.print(table(told))
    for line in verdicts(told):
        console.print(line)
    if arguments.plot:
        plot(told, arguments.plot)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--itl-slo-ms", type=float, nargs="+", default=[100.0], help="targets to put beside")
    parser.add_argument(
        "--budgets", type=int, nargs="+", default=list(BUDGETS), help="fixed steps, in tokens"
    )
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="of a load, about; three times as long at most"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each setting is measured")
    parser.add_argument("--clients", type=int, default=16, help="that wait for an answer all the time")
    parser.add_argument("--share", type=float, help="open loop, at this share of what the pilot did")
    parser.add_argument("--seed", type=int, default=1, help="draws lengths, prompts and instants")
    parser.add_argument("--output", type=Path, help="JSON file for the figures, written after every load")
    parser.add_argument("--plot", type=Path, help="SVG or PNG file for the picture; takes matplotlib")
    return parser.parse_args()


def pilot(arguments: argparse.Namespace, console: Console) -> Plan:
    """What a load has to be to take about as long as asked for. Fewer requests would hold long prompts by chance."""
    console.print(
        f"pilot: {PILOT_REQUESTS} requests of {arguments.clients} clients on default settings ...", end=" "
    )
    load = ["--max-concurrency", str(arguments.clients), "--requests", str(PILOT_REQUESTS)]
    with serving([]) as port:
        result = noria_bench(port, [*LENGTHS, *load, "--bench-seed", str(arguments.seed + 1)], PILOT_LIMIT_S)
    capacity = result["completed"] / result["duration"]
    rate = None if arguments.share is None else arguments.share * capacity
    pace = rate or capacity
    num_requests = max(PILOT_REQUESTS, round(pace * arguments.seconds))
    console.print(
        f"{capacity:.2f} requests/s; every setting gets {num_requests}, for about {num_requests / pace:.0f} s"
    )
    return Plan(arguments.clients, num_requests, rate, num_requests / pace, arguments.seed)


def serving(flags: Sequence[str]) -> Any:
    return noria_server(["--max-model-len", str(LONG_PROMPT + 128), *flags])


def measure(series: Series, plan: Plan, say: Callable[[str], None]) -> None:
    """One round more. What fails is told and left out: hours of other figures shall not be lost to it."""
    start_s = time.monotonic()
    try:
        with serving(series.setting.flags) as port:
            found = measured(noria_bench(port, plan.arguments, plan.limit_s), plan.num_requests)
    except (ChildFailed, AssertionError) as error:
        say(f"failed: {error}")
        return
    series.rounds.append(found)
    say(
        f"{time.monotonic() - start_s:.0f} s: P95 ITL {found.itl_p95_ms:.0f} ms, {found.throughput:.0f} tokens/s"
        + (" (cut)" if found.is_cut else "")
    )


def measured(result: dict[str, Any], num_requests: int) -> Measured:
    figures = result["noria"]["summary"]["figures_ms"]
    return Measured(
        itl_p95_ms=figures["itl"]["p95"],
        itl_mean_ms=figures["itl"]["mean"],
        ttft_p95_ms=figures["ttft_slo"]["p95"],
        throughput=result["total_token_throughput"],
        request_rate=result["request_throughput"],
        seconds=result["duration"],
        is_cut=result["completed"] < num_requests,
        faults=faults(result),
    )


def table(series: Sequence[Series]) -> Table:
    columns = ("P95 ITL ms", "mean", "P95 TTFT s", "tokens/s", "requests/s", "rounds")
    shown = Table(Column("setting", no_wrap=True), *columns, title="medians (least-most) of rounds")
    for one in series:
        shown.add_row(
            one.setting.name,
            _spread(one, "itl_p95_ms"),
            f"{one.median('itl_mean_ms'):.0f}",
            f"{one.median('ttft_p95_ms') / 1e3:.1f}",
            _spread(one, "throughput"),
            f"{one.median('request_rate'):.2f}",
            f"{len(one.rounds)}" + (", cut" if any(run.is_cut for run in one.rounds) else ""),
        )
    return shown


def _spread(one: Series, figure: str) -> str:
    low, high = one.ends(figure)
    return f"{one.median(figure):.0f} ({low:.0f}-{high:.0f})"


def verdicts(series: Sequence[Series]) -> list[str]:
    """For each target, which fixed sizes do better both ways, by medians."""
    lines = []
    fixed = [one for one in series if not one.setting.is_target]
    for target in (one for one in series if one.setting.is_target):
        better = [one for one in fixed if is_better_on_both(one, target)]
        if not better:
            lines.append(f"no fixed size is better than {target.setting.name} on both P95 ITL and throughput")
        lines += [f"{_words(one, target)} than {target.setting.name}" for one in better]
    return lines


def is_better_on_both(one: Series, other: Series) -> bool:
    is_steadier = one.median("itl_p95_ms") < other.median("itl_p95_ms")
    return is_steadier and one.median("throughput") > other.median("throughput")


def _words(one: Series, other: Series) -> str:
    itl = one.median("itl_p95_ms") / other.median("itl_p95_ms") - 1
    throughput = one.median("throughput") / other.median("throughput") - 1
    low, high = other.ends("throughput")
    spread = (high - low) / other.median("throughput")
    return (
        f"{one.setting.name} is better on both: P95 ITL {itl:+.1%}, throughput {throughput:+.1%} "
        f"(rounds of the target differ by {spread:.1%} in throughput)"
    )


def write(series: Sequence[Series], plan: Plan, path: Path) -> None:
    about = {"plan": asdict(plan), "lengths": LENGTHS, "series": [asdict(one) for one in series]}
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def plot(series: Sequence[Series], path: Path) -> None:
    """Throughput against P95 ITL: up and to the left is better. Bars reach from the least to the most of the rounds."""
    pyplot = open_pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    groups = (
        ("fixed max_num_batched_tokens", "o-", [one for one in series if not one.setting.is_target]),
        ("--itl-slo-ms", "*", [one for one in series if one.setting.is_target]),
    )
    for label, style, group in groups:
        if not group:
            continue
        xs, ys = ([one.median(name) for one in group] for name in ("itl_p95_ms", "throughput"))
        bars = [_bars(group, name) for name in ("itl_p95_ms", "throughput")]
        axes.errorbar(
            xs, ys, xerr=bars[0], yerr=bars[1], fmt=style, label=label, markersize=9, elinewidth=0.8
        )
        for one, x, y in zip(group, xs, ys, strict=True):
            axes.annotate(
                f"{one.setting.of:g}", (x, y), textcoords="offset points", xytext=(6, 6), fontsize=8
            )
    axes.set_xscale("log")
    axes.set_xlabel("P95 of gaps between tokens, ms")
    axes.set_ylabel("tokens/s, prompts and answers")
    axes.set_ylim(0, 1.15 * max(one.ends("throughput")[1] for one in series))
    axes.grid(alpha=0.3, which="both")
    axes.legend(loc="lower right")
    save(figure, path)


def _bars(group: Sequence[Series], name: str) -> list[list[float]]:
    ends = [(one.median(name), *one.ends(name)) for one in group]
    return [[middle - low for middle, low, _ in ends], [high - middle for middle, _, high in ends]]


if __name__ == "__main__":
    main()
