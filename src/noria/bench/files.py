"""Writes a run into its directory."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import orjson

from noria.bench.outcome import Outcome
from noria.bench.result import Report, request_rows, result_json
from noria.config.errors import ConfigError

_FLAT = (
    "index",
    "arrival_s",
    "sent_s",
    "first_s",
    "last_s",
    "end_s",
    "status",
    "num_prompt",
    "num_output",
    "num_planned",
    "num_asked",
    "num_cached",
    "queue_wait_s",
    "num_preemptions",
    "session",
    "turn",
    "error",
)


def run_directory(out: str | None) -> Path:
    """Made, and writable, before hours of work are lost to it. Raises ConfigError."""
    path = Path(out) if out is not None else Path("runs") / time.strftime("%Y%m%d-%H%M%S")
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"out {path} cannot be written: {error.strerror}") from error
    return path


def write_run(report: Report, directory: Path, with_texts: bool) -> list[str]:
    """Names of the files."""
    rows = request_rows(report.run)
    content = orjson.dumps(result_json(report, with_texts), option=orjson.OPT_INDENT_2)
    (directory / "result.json").write_bytes(content)
    write_lines(directory / "requests.jsonl", rows)
    _write_csv(directory / "requests.csv", rows)
    names = ["result.json", "requests.jsonl", "requests.csv"]
    if report.run.steps:
        write_lines(directory / "steps.jsonl", report.run.steps)
        names.append("steps.jsonl")
    return names + _write_parquet(directory, rows, report.run.steps)


def read_outcomes(directory: str) -> list[Outcome]:
    """Of the requests of a run in its directory. Raises ConfigError."""
    path = Path(directory) / "requests.jsonl"
    try:
        return [msgspec.json.decode(line, type=Outcome) for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise ConfigError(f"the run {directory} cannot be read: {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} holds no requests of noria bench: {error}") from error


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(row) + b"\n")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    chunks = row["chunk_s"]
    ends = {"first_s": chunks[0] if chunks else None, "last_s": chunks[-1] if chunks else None}
    return {name: {**row, **ends}[name] for name in _FLAT}


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _FLAT)
        writer.writeheader()
        writer.writerows(_flat(row) for row in rows)


def _write_parquet(
    directory: Path, rows: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]]
) -> list[str]:
    """Where pyarrow is installed; else nothing."""
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        return []
    tables = {"requests.parquet": [_flat(row) for row in rows]}
    if steps:
        tables["steps.parquet"] = [{key: row[key] for key in row if key != "work"} for row in steps]
    for name, table in tables.items():
        parquet.write_table(pyarrow.Table.from_pylist(table), directory / name)
    return list(tables)
