"""What a run says at its end: one table, and a file with everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.engines import Engine, Situation
from benchmarks.peers.points import POINTS, Better, Row
from benchmarks.peers.series import Outcome
from benchmarks.peers.summary import Cell, Line, summarise

_TITLES = {point.name: point.title for point in POINTS}


@dataclass(frozen=True, slots=True)
class Run:
    """problems: what could not be set up, by engine or "form". settings: as asked and as resolved."""

    engines: Sequence[Engine]
    problems: dict[str, str]
    machine: dict[str, Any]
    settings: dict[str, Any]
    outcomes: list[Outcome]


def show(console: Console, run: Run) -> None:
    """The table, what it was measured with, and what is missing in it and why."""
    lines = summarise(run.outcomes)
    table = Table(
        title=f"Noria beside its peers: {run.settings['model']} as {run.settings['format']}",
        caption="Medians of all rounds, with least and greatest. Ratio: above 1, Noria is better.",
    )
    table.add_column("")
    for engine in run.engines:
        table.add_column(engine.title, justify="right")
    table.add_column("Noria /\nbest peer", justify="right")
    for before, line in zip([None, *lines], lines, strict=False):
        if before is None or before.point != line.point:
            table.add_section()
            table.add_row(f"[bold]{_TITLES[line.point]}[/bold]")
        table.add_row(*_written(line, run.engines))
    console.print(table)
    show_setup(console, run)
    for outcome in run.outcomes:
        if outcome.measured is None:
            console.print(
                f"[red]{outcome.engine}, {outcome.point}, round {outcome.round + 1}:[/red] ", end=""
            )
            console.print(outcome.failure, markup=False, highlight=False)


def show_setup(console: Console, run: Run) -> None:
    """The machine, the engines and what could not be set up."""
    machine = run.machine
    console.print(
        f"{machine['processor']}, {machine['cpus']} CPUs ({', '.join(machine['instructions'])}), "
        f"{machine['memory_bytes'] / 2**30:.1f} GiB, load {machine['load_at_start']:.1f} at start",
        highlight=False,
    )
    versions = (f"{engine.name} {engine.version}" for engine in run.engines)
    console.print("; ".join(versions), markup=False, highlight=False)
    for name, why in run.problems.items():
        console.print(f"[red]{name}:[/red] ", end="")
        console.print(why, markup=False, highlight=False)


def _written(line: Line, engines: Sequence[Engine]) -> list[str]:
    cells = [
        _cell(line.cells[engine.name], line.row) if engine.name in line.cells else "-" for engine in engines
    ]
    return [f"  {line.row.figure}", *cells, _ratio(line)]


def _cell(cell: Cell, row: Row) -> str:
    written = row.form.format(cell.median)
    if len(cell.values) == 1:
        return written
    return f"{written} [dim]{row.form.format(min(cell.values))}-{row.form.format(max(cell.values))}[/dim]"


def _ratio(line: Line) -> str:
    if line.ratio is None:
        return ""
    # Twice the best peer is the bar for rates and starts, no worse than it for everything else.
    bar = 2.0 if line.row.better is Better.MORE or line.point == "ready" else 1.0
    colour = "green" if line.ratio >= bar else "red" if line.ratio < 1 else "yellow"
    return f"[{colour}]{line.ratio:.2f}[/{colour}]"


def write(path: Path, run: Run) -> None:
    """Everything that was measured, each token's time included, as JSON."""
    document = {
        "machine": run.machine,
        "settings": run.settings,
        "engines": {engine.name: _described(engine) for engine in run.engines},
        "problems": run.problems,
        "summary": [_summarised(line) for line in summarise(run.outcomes)],
        "outcomes": [_raw(outcome) for outcome in run.outcomes],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def _described(engine: Engine) -> dict[str, Any]:
    return {
        "title": " ".join(engine.title.split()),
        "version": engine.version,
        "commands": {situation.value: str(engine.command(situation)) for situation in Situation},
    }


def _summarised(line: Line) -> dict[str, Any]:
    return {
        "point": line.point,
        "figure": line.row.figure,
        "better": line.row.better.value,
        "medians": {name: cell.median for name, cell in line.cells.items()},
        "values": {name: cell.values for name, cell in line.cells.items()},
        "best_peer": line.best_peer,
        "ratio": line.ratio,
    }


def _raw(outcome: Outcome) -> dict[str, Any]:
    measured = outcome.measured
    return {
        "round": outcome.round,
        "engine": outcome.engine,
        "point": outcome.point,
        "begin_s": outcome.begin_s,
        "starts_s": outcome.starts_s,
        "failure": outcome.failure,
        "figures": measured.figures if measured else {},
        "replies": [reply.as_json() for reply in measured.replies] if measured else [],
    }
