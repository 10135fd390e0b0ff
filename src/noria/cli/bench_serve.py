"""`noria bench serve`: one process makes the load, this one shows it and writes the report."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from rich.console import Console

from noria.bench.files import run_directory, write_run
from noria.bench.html import write_html
from noria.bench.live import Progress
from noria.bench.result import make_report
from noria.bench.run import RunResult
from noria.bench.slo import parse_slo
from noria.bench.table import render
from noria.bench.validity import are_valid
from noria.cli.unused import tell_unused
from noria.config.benching import BenchOptions, TargetOptions
from noria.config.errors import ConfigError, EngineError
from noria.config.option import as_flag

_INVALID_STATUS = 1
_WIDTH = 120  # of a table that is not shown on a terminal


def run(options: BenchOptions) -> int:
    """Status 1 for a run that says nothing: the client was late, or prompts were not what was meant."""
    _check(options)
    directory = run_directory(options.result.out)
    result = measure(options)
    report = make_report(result, options)
    names = write_run(report, directory, options.texts.save_texts)
    names += write_html(report, directory / "report.html")
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for part in render(report):
        console.print(part)
    print(f"{directory}: {', '.join(names)}", file=sys.stderr)
    return 0 if are_valid(report.checks) else _INVALID_STATUS


def measure(options: BenchOptions) -> RunResult:
    """Run the load in a process of its own, showing how it goes. Ctrl-C ends the load. Raises NoriaError."""
    with Progress(options.progress.progress) as progress, _child(options) as (process, pipe):
        while True:
            kind, content = _receive(process, pipe)
            if kind == "news":
                progress.show(content)
            elif kind == "error":
                raise content
            else:
                return content


def _check(options: BenchOptions) -> None:
    """Raise ConfigError, before anything is loaded, for what cannot work."""
    if options.load.until is not None and not parse_slo(options.load.slo).is_stated:
        raise ConfigError(
            "until certain needs limits to be certain of: give --slo, as in --slo ttft:500 tpot:50"
        )
    if options.target.base_url is None and options.target.endpoint == "chat":
        raise ConfigError(
            "endpoint chat is a server's: give --base-url; the engine in process takes token ids"
        )
    if options.target.base_url is None:
        _check_in_process(options.target)
    elif options.engine.model.model is not None:
        raise ConfigError(
            "a model and --base-url exclude each other: the server has a model; --request-model picks one of its"
        )
    else:
        why = "the server at --base-url has its own settings"
        tell_unused(options.engine, why, used=("tokenizer", "revision"))


def _check_in_process(target: TargetOptions) -> None:
    of_servers = {
        "request_model": target.request_model is not None,
        "extra_body": target.extra_body is not None,
        "exact_chunks": target.exact_chunks,
    }
    for name, is_stated in of_servers.items():
        if is_stated:
            raise ConfigError(
                f"{as_flag(name)} is about requests to a server: give --base-url, or leave it out"
            )


@contextmanager
def _child(options: BenchOptions) -> Iterator[tuple[BaseProcess, Connection]]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    from noria.cli import bench_child

    process = context.Process(target=bench_child.main, args=(options, there), name="noria-bench")
    # Ctrl-C reaches both processes; what it means is the child's to say, and the second time ends both.
    before = signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, before))
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        signal.signal(signal.SIGINT, before)
        here.close()
        if process.is_alive():
            process.join(10)
        if process.is_alive():
            process.kill()
            process.join()


def _receive(process: BaseProcess, pipe: Connection) -> tuple[str, Any]:
    try:
        return pipe.recv()
    except EOFError:
        process.join()
        raise EngineError(f"the process that makes the load ended with status {process.exitcode}") from None
