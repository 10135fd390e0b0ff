"""`noria bench trace`: what is in a trace, and the same in another form."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from noria.bench.trace_files import describe, lines_of
from noria.bench.traces import Units, read_trace, sniff
from noria.config.bench_others import TraceCommandOptions
from noria.config.errors import ConfigError


def run(options: TraceCommandOptions) -> int:
    asked = options.trace
    if asked.trace is None:
        raise ConfigError("trace must be given: the file to read")
    kind = sniff(asked.trace) if asked.trace_format == "auto" else asked.trace_format
    if kind == "sharegpt":
        raise ConfigError(f"{asked.trace} holds texts without instants; noria bench serve --trace plays them")
    trace = read_trace(asked.trace, kind, Units(asked.trace_block_size, asked.trace_time_unit))
    table = Table(title=asked.trace, show_header=False)
    for name, value in describe(trace):
        table.add_row(name, value)
    Console().print(table)
    if asked.write_trace is not None:
        with open(asked.write_trace, "w", encoding="utf-8") as file:
            file.writelines(
                f"{line}\n" for line in lines_of(trace, asked.write_format, asked.trace_block_size)
            )
    return 0
