"""Reads a run log: the settings, what arrived, and every step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from noria.capacity.arrivals import Arrival, Ending
from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError
from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.run_log import EndedEntry, EngineEntry, Entry, StepEntry

_MOST = 2**31 - 1  # of made-up token ids


@dataclass(frozen=True, slots=True)
class Ended:
    """A sequence of a run as it can be given to an engine again, and what became of it."""

    arrival: Arrival
    record: RequestRecord


@dataclass(frozen=True, slots=True)
class Run:
    """ended: by request id. Instants are those of the engine's clock; an arrival's counts from the run's first."""

    version: str
    config: EngineConfig
    steps: tuple[StepRecord, ...]
    ended: dict[str, Ended]

    def arrivals(self) -> list[Arrival]:
        """In the order in which the engine took them."""
        return sorted((one.arrival for one in self.ended.values()), key=lambda arrival: arrival.at_s)


def read_run(path: str | Path) -> Run:
    """Raises ConfigError for a file that is no run log; a last line that was cut off is passed over."""
    header: EngineEntry | None = None
    steps: list[StepRecord] = []
    ended: list[EndedEntry] = []
    for entry in _entries(Path(path)):
        if isinstance(entry, EngineEntry):
            header = entry
        elif isinstance(entry, StepEntry):
            steps.append(entry.record)
        else:
            ended.append(entry)
    if header is None:
        raise ConfigError(f"{path} is no run log: it does not begin with an engine's settings")
    first_s = min((entry.record.accepted_s for entry in ended), default=0.0)
    block_size = header.config.cache.block_size
    told = {
        entry.record.request_id: Ended(_arrival(entry, first_s, block_size), entry.record) for entry in ended
    }
    return Run(header.version, header.config, tuple(steps), told)


def _entries(path: Path) -> Iterator[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the run log {path} cannot be read: {error.strerror}") from error
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError as error:
            if number == len(lines):  # the engine ended in the middle of it
                return
            raise ConfigError(f"{path}, line {number}: {error}") from error


def _arrival(entry: EndedEntry, first_s: float, block_size: int) -> Arrival:
    record = entry.record
    num_tokens = record.num_prompt_tokens + record.num_output_tokens
    return Arrival(
        request_id=record.request_id,
        at_s=record.accepted_s - first_s,
        tokens=_tokens(entry.digests, num_tokens, block_size, record.request_id),
        num_prompt=record.num_prompt_tokens,
        max_tokens=entry.max_tokens,
        ending=_ending(entry),
        prompt_logprobs=0 if entry.needs_every_position else None,
        priority=record.priority,
        tenant=entry.tenant,
        timeout_s=entry.timeout_s,
    )


def _ending(entry: EndedEntry) -> Ending:
    if entry.by_token:
        return Ending.TOKEN
    # Where nothing was asked for beyond the prompt, it was pooled, and that is the end of it.
    ends_alone = entry.record.finish is FinishReason.LENGTH or (
        entry.record.finish is FinishReason.STOP and entry.max_tokens == 0
    )
    return Ending.LENGTH if ends_alone else Ending.CANCEL


def _tokens(digests: tuple[str, ...], num_tokens: int, block_size: int, request_id: str) -> tuple[int, ...]:
    """Made-up ids: blocks that were alike are alike again, and what fills no block is like nothing else."""
    tokens: list[int] = []
    for digest in digests:
        tokens += _block(int(digest, 16), block_size)
    tail = int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:8], "big")
    return tuple([*tokens, *_block(tail, block_size)][:num_tokens])


def _block(number: int, block_size: int) -> list[int]:
    # Two tokens hold the whole number, so that different digests never make the same block.
    first, second = 1 + number % _MOST, 1 + number // _MOST % _MOST
    return [first, second, *(1 + (first + place) % _MOST for place in range(2, block_size))][:block_size]
