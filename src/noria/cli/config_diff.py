"""`noria config diff`: what changed between two runs, or two operating points."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from noria.bench.diff import changes, fingerprint_of
from noria.config.bench_others import DiffCommandOptions
from noria.config.errors import ConfigError


def run(options: DiffCommandOptions) -> int:
    """Status 1 where something changed."""
    if len(options.runs.runs) != 2:
        raise ConfigError(
            f"runs must be two directories of noria bench or two operating points, got {len(options.runs.runs)}"
        )
    before, after = (fingerprint_of(run) for run in options.runs.runs)
    found = changes(before, after)
    console = Console()
    if not found:
        console.print("nothing changed: engine, model, settings, workload, load and machine are the same")
        return 0
    table = Table("what", *options.runs.runs)
    for change in found:
        table.add_row(change.name, _words(change.before), _words(change.after))
    console.print(table)
    return 1


def _words(value: object) -> str:
    return "-" if value is None else str(value)
