"""`noria bench prefix`: what the prefix cache gains at each sharing ratio, and what it costs when nothing is shared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

from rich.console import Console
from rich.table import Table

from noria.bench.files import run_directory, write_lines
from noria.bench.pieces import sharing_ratio
from noria.cli.bench_in_process import Played, play_at_once
from noria.config.bench_others import PrefixCommandOptions
from noria.config.benching import WorkloadOptions
from noria.config.errors import ConfigError

_PREFIX_TOKENS = 256  # where none is stated, there would be nothing to share


@dataclass(frozen=True, slots=True)
class Gain:
    """At one ratio: medians over rounds, with the cache and without. shared: share of prompt tokens that could
    be found, cached: that were. Times in seconds."""

    ratio: float
    shared: float
    cached: float
    seconds_with: float
    seconds_without: float
    ttft_with_s: float
    ttft_without_s: float

    @property
    def speed_up(self) -> float:
        """Below 1 is what the cache costs."""
        return self.seconds_without / self.seconds_with


def run(options: PrefixCommandOptions) -> int:
    if options.workload.trace is not None:
        raise ConfigError("bench prefix makes its own prompts, to share what --ratios say; leave --trace out")
    directory = run_directory(options.result.out)
    found: dict[float, tuple[list[Played], list[Played]]] = {
        ratio: ([], []) for ratio in options.ratios.ratios
    }
    for number in range(options.ratios.rounds):
        for ratio, (cached, plain) in found.items():
            workload = _workload(options.workload, ratio)
            # In turns, so that what else goes on at the machine meets both.
            order = ((cached, True), (plain, False)) if number % 2 == 0 else ((plain, False), (cached, True))
            for runs, is_on in order:
                runs.append(
                    play_at_once(
                        options.engine, workload, options.amount.requests, enable_prefix_caching=is_on
                    )
                )
    gains = [gain(ratio, *both) for ratio, both in found.items()]
    prefix = _workload(options.workload, 1.0).prefix_tokens
    Console().print(_table(gains, options.amount.requests, prefix))
    rows = [{**asdict(one), "speed_up": one.speed_up} for one in gains]
    write_lines(directory / "prefix.jsonl", rows)
    print(f"{directory}: prefix.jsonl", file=sys.stderr)
    return 0


def gain(ratio: float, cached: Sequence[Played], plain: Sequence[Played]) -> Gain:
    return Gain(
        ratio,
        shared=sharing_ratio(cached[0].workload.requests),
        cached=median(one.cached_share for one in cached),
        seconds_with=median(one.seconds for one in cached),
        seconds_without=median(one.seconds for one in plain),
        ttft_with_s=median(one.mean_ttft_s for one in cached),
        ttft_without_s=median(one.mean_ttft_s for one in plain),
    )


def _workload(options: WorkloadOptions, ratio: float) -> WorkloadOptions:
    return replace(options, prefix_sharing=ratio, prefix_tokens=options.prefix_tokens or _PREFIX_TOKENS)


def _table(gains: Sequence[Gain], num_requests: int, prefix_tokens: int) -> Table:
    table = Table(
        title=f"{num_requests} requests at once, prefix of {prefix_tokens} tokens",
        caption="speed-up: time without the cache by time with it; at a ratio of 0 what is below 1 is its cost.",
    )
    heads = (
        "sharing",
        "tokens shared",
        "found",
        "seconds with",
        "without",
        "speed-up",
        "TTFT with, s",
        "without",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for one in gains:
        table.add_row(
            f"{one.ratio:.0%}",
            f"{one.shared:.1%}",
            f"{one.cached:.1%}",
            f"{one.seconds_with:.2f}",
            f"{one.seconds_without:.2f}",
            f"{one.speed_up:.2f}",
            f"{one.ttft_with_s:.2f}",
            f"{one.ttft_without_s:.2f}",
        )
    return table
