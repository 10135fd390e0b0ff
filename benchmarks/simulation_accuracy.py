"""How near noria simulate comes to what noria serve does, on loads that its step model was not learnt from.

    python -m benchmarks.simulation_accuracy [--seconds 45] [--directory accuracy] [--judge-only] [--table FILE]

Starts one server for each of two settings and measures three workloads at five rates from 50 to 95 % of capacity on
each, some of them twice. Takes about 40 minutes of a machine that does nothing else. What is measured is kept in the
directory after each load; a run that was cut off goes on where it stopped. --judge-only simulates and compares what is
there, without a server.

The step model of a setting is learnt from its server's run log under other loads, before; what HTTP costs, from the
instants of client and log under these; how fast the machine is and how much that differs, from all steps before a
load. Nothing of a held-out load is used to foretell it. "In hindsight" is beside it: simulated with the speed that
the machine had at each moment of the load, so what is left is the fault of the simulation.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks.accuracy.foretelling import foreteller, learnt_file
from benchmarks.accuracy.judging import judge
from benchmarks.accuracy.loads import (
    LEARNT,
    MAX_MODEL_LEN,
    SETTINGS,
    Held,
    held_out,
    learning_plays,
    named_anew,
    play_of,
)
from benchmarks.accuracy.measured import Measured, Server, open_servers, save
from benchmarks.accuracy.report import markdown, words_of, write_json
from benchmarks.noria_server import noria_server
from noria.bench.urgency import become_urgent

_WIDTH = 160
_WARM_UP_S = 3.0
_SETTLE_S = 0.3  # between two loads, so that what the first left behind is done


def main() -> None:
    arguments = _arguments()
    console = Console(width=_WIDTH)
    directory: Path = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    points = held_out()[: arguments.points]
    if not arguments.judge_only:
        measure_all(arguments, points, console)
    judged = judge(directory, points, arguments.runs, console)
    write_json(judged, directory / "accuracy.json")
    table = markdown(judged)
    console.print(table, markup=False, highlight=False)
    if arguments.table:
        arguments.table.write_text(table + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=45.0, help="of arrivals, each held-out load")
    parser.add_argument(
        "--learn-seconds", type=float, default=60.0, help="of loads to learn from, each server"
    )
    parser.add_argument("--points", type=int, default=None, help="only so many of the held-out loads")
    parser.add_argument("--runs", type=int, default=20, help="simulations of each held-out load")
    parser.add_argument("--directory", type=Path, default=Path("accuracy"), help="for what is measured")
    parser.add_argument("--judge-only", action="store_true", help="compare what the directory holds")
    parser.add_argument("--table", type=Path, help="file for the table, in Markdown")
    return parser.parse_args()


def log_name(setting: str, started: str) -> str:
    return f"{setting}-{started}.jsonl".replace(" ", "-")


def measure_all(arguments: argparse.Namespace, points: list[Held], console: Console) -> None:
    """Those that were not measured before; of none it only learns."""
    directory: Path = arguments.directory
    if points and all(held.file(directory).exists() for held in points):
        return
    started = time.strftime("%Y%m%d-%H%M%S")
    logs = {setting: log_name(setting, started) for setting in SETTINGS}
    with ExitStack() as stack:
        ports = {
            setting: stack.enter_context(
                noria_server(
                    [
                        *flags,
                        "--max-model-len",
                        str(MAX_MODEL_LEN),
                        "--run-log",
                        str(directory / logs[setting]),
                    ]
                )
            )
            for setting, flags in SETTINGS.items()
        }
        become_urgent()
        uvloop.run(_measure(arguments, points, ports, logs, console))
        os.setpriority(os.PRIO_PROCESS, 0, 0)


async def _measure(
    arguments: argparse.Namespace,
    points: list[Held],
    ports: dict[str, int],
    logs: dict[str, str],
    console: Console,
) -> None:
    servers = await open_servers(ports, logs)
    foretellers = {}
    for setting, server in servers.items():
        measured = await _learn(server, setting, arguments.learn_seconds)
        save(measured, learnt_file(arguments.directory, server.log))
        foretellers[setting] = foreteller(arguments.directory, server.log)
        console.print(f"{setting}: {foretellers[setting].words()}")
    left = [held for held in points if not held.file(arguments.directory).exists()]
    start_s = time.perf_counter()
    for number, held in enumerate(left):
        rate = held.share * foretellers[held.setting].capacity(held.workload)
        measured_one = await _held_out(servers[held.setting], held, rate, arguments.seconds)
        save(measured_one, held.file(arguments.directory))
        each_s = (time.perf_counter() - start_s) / (number + 1)
        console.print(
            f"{number + 1} of {len(left)}, {each_s * (len(left) - number - 1) / 60:.1f} min left: {held} at "
            f"{rate:.2f}/s: {words_of(measured_one)}"
        )
    for server in servers.values():
        server.close()


async def _learn(server: Server, setting: str, seconds: float) -> list[Measured]:
    """First of all what a load at full size takes for the first time, which is not kept."""
    max_num_seqs = int(SETTINGS[setting][1])
    for play in islice(learning_plays(seconds, max_num_seqs, "warm-up"), len(LEARNT)):
        await server.measure(replace(play, duration_s=_WARM_UP_S))
    return [await server.measure(play) for play in learning_plays(seconds, max_num_seqs)]


async def _held_out(server: Server, held: Held, rate: float, seconds: float) -> Measured:
    play = named_anew(play_of(held.workload, rate, seconds), str(held))
    measured = await server.measure(play)
    await asyncio.sleep(_SETTLE_S)
    return replace(measured, rate=rate, seconds=seconds)


if __name__ == "__main__":
    main()
