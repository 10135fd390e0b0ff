"""Readers of traces: instants, lengths, and what prompts share. Read by column names, not by positions.

Texts are in none of them: prompts are made up to the recorded lengths, and share what their hashes say they shared.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson

from noria.bench.pieces import Piece
from noria.config.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TraceRow:
    """time_s: from any origin. pieces: the prompt."""

    time_s: float
    pieces: tuple[Piece, ...]
    num_output: int
    session: str | None = None
    turn: int = 0

    @property
    def num_prompt(self) -> int:
        return sum(piece.num_tokens for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Trace:
    """rows: in the order of time, from 0 on. num_left_out: rows that are no request that was served."""

    kind: str
    rows: tuple[TraceRow, ...]
    num_left_out: int


@dataclass(frozen=True, slots=True)
class Units:
    """What a file does not say itself: tokens that a hash stands for, and seconds of one unit of time."""

    block_size: int = 512
    time_unit_s: float = 0.001


def read_trace(path: str, kind: str, units: Units | None = None) -> Trace:
    """kind: one of `READERS`. Raises ConfigError, with the line, for what is no such trace."""
    rows: list[TraceRow] = []
    num_left_out = 0
    for row in READERS[kind](path, units or Units()):
        if row.num_output < 1 or row.num_prompt < 1:
            num_left_out += 1  # a request that failed when the trace was taken
        else:
            rows.append(row)
    if not rows:
        raise ConfigError(f"{path} holds no request")
    rows.sort(key=lambda row: row.time_s)
    origin_s = rows[0].time_s
    shifted = (
        TraceRow(row.time_s - origin_s, row.pieces, row.num_output, row.session, row.turn) for row in rows
    )
    return Trace(kind, tuple(shifted), num_left_out)


def _azure(path: str, units: Units) -> Iterator[TraceRow]:
    for number, row in _csv_rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        with _line(path, number):
            time_s = _instant(row["TIMESTAMP"])
            yield _alone(number, time_s, int(row["ContextTokens"]), int(row["GeneratedTokens"]))


def _instant(text: str) -> float:
    """Of `2023-11-16 18:17:03.9799600`, with any number of digits, and perhaps an offset: seconds since 1970."""
    main, _, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    moment = datetime.fromisoformat((main + rest[len(digits) :]).replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)


def _burstgpt(path: str, units: Units) -> Iterator[TraceRow]:
    # An older file lacks the columns of sessions and of elapsed time.
    turns: dict[str, int] = {}
    for number, row in _csv_rows(path, ("Timestamp", "Request tokens", "Response tokens")):
        with _line(path, number):
            session = (row.get("Session ID") or "").strip() or None
            turn = turns.get(session, 0) if session else 0
            if session:
                turns[session] = turn + 1
            pieces = (Piece(f"row {number}", int(float(row["Request tokens"]))),)
            num_output = int(float(row["Response tokens"]))
            yield TraceRow(float(row["Timestamp"]), pieces, num_output, session, turn)


def _mooncake(path: str, units: Units) -> Iterator[TraceRow]:
    for number, row in _json_lines(path):
        with _line(path, number):
            pieces = _hashed(row["hash_ids"], int(row["input_length"]), units.block_size, number)
            session = row.get("session_id")
            time_s = float(row["timestamp"]) * units.time_unit_s
            yield TraceRow(
                time_s, pieces, int(row["output_length"]), None if session is None else str(session)
            )


def _hashed(hash_ids: list[Any], num_prompt: int, block_size: int, number: int) -> tuple[Piece, ...]:
    # a hash stands for a block of tokens and, as it is chained, for everything before
    num_needed = -(-num_prompt // block_size)
    if len(hash_ids) not in (num_needed, num_prompt // block_size):
        raise ValueError(
            f"{len(hash_ids)} hash_ids cannot be a prompt of {num_prompt} tokens in blocks of {block_size}; "
            f"--trace-block-size says how many tokens a hash stands for"
        )
    return _blocks(hash_ids, num_prompt, block_size, number)


def _blocks(names: Sequence[object], num_prompt: int, block_size: int, number: int) -> tuple[Piece, ...]:
    """A prompt in blocks with these names. What they do not cover is like nothing else."""
    pieces, left = [], num_prompt
    for name in names:
        pieces.append(Piece(f"hash {name}", min(block_size, left)))
        left -= pieces[-1].num_tokens
    if left:
        pieces.append(Piece(f"row {number}", left))
    return tuple(pieces)


def _request_log(path: str, units: Units) -> Iterator[TraceRow]:
    """Noria's own: the `requests.jsonl` of a run."""
    for number, row in _json_lines(path):
        with _line(path, number):
            pieces = tuple(Piece(str(name), int(count)) for name, count in row.get("pieces") or ())
            pieces = pieces or (Piece(f"row {number}", int(row["num_prompt"])),)
            session = row.get("session")
            yield TraceRow(
                float(row["arrival_s"]), pieces, int(row["num_output"]), session, int(row.get("turn") or 0)
            )


def _run_log(path: str, units: Units) -> Iterator[TraceRow]:
    """What `noria serve --run-log` took down: every sequence that the engine accepted, as long as it became."""
    block_size = None
    for number, line in _lines(path):
        if not line.endswith("\n"):
            return  # the server is writing it, or ended in the middle of it
        entry = _object(path, number, line)
        with _line(path, number):
            if block_size is None:
                block_size = _block_size(entry)
            elif entry["type"] == "ended":
                record, digests = entry["record"], entry["digests"]
                num_prompt = int(record["num_prompt_tokens"])
                # Digests go on into the answer, which is another one when the trace is played.
                pieces = _blocks(digests[: num_prompt // block_size], num_prompt, block_size, number)
                yield TraceRow(float(record["accepted_s"]), pieces, int(record["num_output_tokens"]))


def _block_size(entry: dict[str, Any]) -> int:
    if entry["type"] != "engine":
        raise ValueError("a run log begins with the engine's settings")
    return int(entry["config"]["cache"]["block_size"])


READERS: dict[str, Callable[[str, Units], Iterator[TraceRow]]] = {
    "azure": _azure,
    "burstgpt": _burstgpt,
    "mooncake": _mooncake,
    "noria": _request_log,
    "run-log": _run_log,
}


def sniff(path: str) -> str:
    """Which kind a file is, by its first line. Raises ConfigError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            line = file.readline()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for kind, words in (
        ("run-log", ('{"type":"engine"',)),
        ("azure", ("ContextTokens",)),
        ("burstgpt", ("Request tokens",)),
        ("mooncake", ("hash_ids", "input_length")),
        ("noria", ("arrival_s", "num_output")),
    ):
        if all(word in line for word in words):
            return kind
    if line.lstrip().startswith("["):
        return "sharegpt"
    raise ConfigError(
        f"{path} is no trace that is known; --trace-format says which of {', '.join(READERS)}, sharegpt"
    )


def _alone(number: int, time_s: float, num_prompt: int, num_output: int) -> TraceRow:
    return TraceRow(time_s, (Piece(f"row {number}", num_prompt),), num_output)


class _line:
    """Turns what goes wrong with a line into a ConfigError that names it."""

    def __init__(self, path: str, number: int) -> None:
        self.path = path
        self.number = number

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (KeyError, ValueError, TypeError)):
            what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise ConfigError(f"{self.path}, line {self.number}: {what}") from error


def _csv_rows(path: str, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    with _opened(path) as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise ConfigError(
                f"{path} has no column {', '.join(missing)}; it has {', '.join(reader.fieldnames or ())}"
            )
        yield from enumerate(reader, 2)


def _json_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        yield number, _object(path, number, line)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def _object(path: str, number: int, line: str) -> dict[str, Any]:
    with _line(path, number):
        row = orjson.loads(line)
        if isinstance(row, dict):
            return row
        raise ValueError("not a JSON object")


def _opened(path: str) -> Any:
    try:
        return Path(path).open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
