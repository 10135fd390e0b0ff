"""How many times faster than real time noria simulate is, on the loads of benchmarks.simulation_accuracy.

    python -m benchmarks.simulation_speed [--learn-seconds 25] [--directory speed]

Nothing of these loads is sent: a step model is learnt from other loads on each of two servers, some two minutes in all;
then every load is simulated, several at once, as many as there are processors. --directory keeps what was learnt: a
second run, perhaps of another version, simulates the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.accuracy.foretelling import Foreteller, foreteller
from benchmarks.accuracy.loads import SETTINGS, Held, held_out, play_of
from benchmarks.simulation_accuracy import log_name, measure_all
from noria.capacity.workers import Workers

_RUNS = 2  # of each load, with different seeds


def main() -> None:
    arguments = _arguments()
    console = Console()
    directory: Path = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    if not _logs(directory):
        measure_all(arguments, [], console)
    foretellers = {setting: foreteller(directory, log) for setting, log in _logs(directory).items()}
    whole, each = _speeds(foretellers, arguments.seconds)
    console.print(
        f"{len(each)} loads of {arguments.seconds:g} s, {_RUNS} times each: {whole:.0f} times real time together; a "
        f"load in its process {np.median(each):.0f} (median; {min(each):.0f} to {max(each):.0f})",
        highlight=False,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of arrivals, each load")
    parser.add_argument(
        "--learn-seconds", type=float, default=25.0, help="of loads to learn from, each server"
    )
    parser.add_argument("--directory", type=Path, default=Path("speed"), help="for what is learnt")
    return parser.parse_args()


def _logs(directory: Path) -> dict[str, str]:
    """Of each setting the latest; empty unless all are there."""
    found = {setting: sorted(directory.glob(log_name(setting, "*"))) for setting in SETTINGS}
    return {setting: paths[-1].name for setting, paths in found.items()} if all(found.values()) else {}


def _speeds(foretellers: Mapping[str, Foreteller], seconds: float) -> tuple[float, list[float]]:
    """Simulated seconds a second: of all loads together, and of each in its process."""
    loads = held_out()
    capacities = {
        (one.workload, one.setting): foretellers[one.setting].capacity(one.workload) for one in loads
    }
    plays = {
        one: play_of(one.workload, one.share * capacities[one.workload, one.setting], seconds)
        for one in loads
    }

    def simulated(task: tuple[Held, int]) -> tuple[float, float]:
        """Seconds of the load, and what they took."""
        held, seed = task
        start_s = time.perf_counter()
        ended = foretellers[held.setting].outcomes(plays[held], seed, 0.0)
        return max(one.end_s for one in ended), time.perf_counter() - start_s

    tasks = [(held, seed) for held in loads for seed in range(_RUNS)]
    start_s = time.perf_counter()
    with Workers(simulated, tasks) as workers:
        found = list(workers.results())
    whole_s = time.perf_counter() - start_s
    pairs = np.array(found).reshape(len(loads), _RUNS, 2).sum(axis=1)
    return float(pairs[:, 0].sum()) / whole_s, (pairs[:, 0] / pairs[:, 1]).tolist()


if __name__ == "__main__":
    main()
