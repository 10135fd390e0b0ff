"""`noria bench block-size`: what the last block of every sequence wastes, against what small blocks cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from noria.bench.files import run_directory, write_lines
from noria.bench.held import held
from noria.cli.bench_in_process import Played, play_at_once
from noria.config.bench_others import BlockSizeCommandOptions
from noria.config.errors import ConfigError

_SIZES = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Trade:
    """Of one block size: medians over rounds. waste: share of slots in held blocks that hold no token. entries: of all
    block tables in a step. plan_us, step_us: means of a step. cached: share of prompt tokens found in the cache."""

    block_size: int
    waste: float
    entries: float
    plan_us: float
    step_us: float
    tokens_per_s: float
    cached: float


def run(options: BlockSizeCommandOptions) -> int:
    sizes = options.sizes.sizes or _SIZES
    directory = run_directory(options.result.out)
    played: dict[int, list[Played]] = {size: [] for size in sizes}
    skipped: dict[int, str] = {}
    for size in list(sizes) * options.sizes.rounds:
        try:
            one = play_at_once(options.engine, options.workload, options.amount.requests, block_size=size)
        except ConfigError as error:
            if options.sizes.sizes:
                raise
            skipped[size] = str(error)  # a size that nobody stated, and that this backend does not know
            continue
        played[size].append(one)
    trades = [trade(size, runs) for size, runs in played.items() if runs]
    Console().print(_table(trades, options.amount.requests))
    for size, why in skipped.items():
        print(f"blocks of {size} left out: {why}", file=sys.stderr)
    write_lines(directory / "block_size.jsonl", [_row(one) for one in trades])
    print(f"{directory}: block_size.jsonl", file=sys.stderr)
    return 0


def trade(block_size: int, runs: Sequence[Played]) -> Trade:
    return Trade(
        block_size,
        waste=median(held(one.steps, block_size).waste for one in runs),
        entries=median(held(one.steps, block_size).entries for one in runs),
        plan_us=median(one.mean_step_us("sched_us") for one in runs),
        step_us=median(one.mean_step_us("exec_us") for one in runs),
        tokens_per_s=median(one.num_output / one.seconds for one in runs),
        cached=median(one.cached_share for one in runs),
    )


def _table(trades: Sequence[Trade], num_requests: int) -> Table:
    table = Table(
        title=f"{num_requests} requests at once, by block size",
        caption="waste: slots of held blocks without a token. Smaller blocks waste less, and make longer tables.",
    )
    heads = (
        "tokens a block",
        "waste",
        "table entries",
        "plan, us",
        "step, us",
        "output tokens/s",
        "prompt cached",
    )
    for head in heads:
        table.add_column(head, justify="right")
    for one in trades:
        table.add_row(
            str(one.block_size),
            f"{one.waste:.1%}",
            f"{one.entries:.0f}",
            f"{one.plan_us:.0f}",
            f"{one.step_us:.0f}",
            f"{one.tokens_per_s:.0f}",
            f"{one.cached:.1%}",
        )
    return table


def _row(one: Trade) -> dict[str, float]:
    return asdict(one)
