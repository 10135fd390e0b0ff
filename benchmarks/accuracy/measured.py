"""The real loads: sent over HTTP, and kept in files with every instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from noria.bench.generator import Generator
from noria.bench.http_target import HttpTarget, open_http_target
from noria.bench.outcome import Outcome
from noria.bench.play import Play
from noria.config.benching import TargetOptions

_ANSWER_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A load that was sent. origin_s: the instant on the machine's monotonic clock that outcomes count from.

    log: file name of the run log of the server that answered. rate, seconds: what was asked for, of a held-out load.
    """

    log: str
    origin_s: float
    outcomes: tuple[Outcome, ...]
    rate: float | None = None
    seconds: float | None = None

    @property
    def end_s(self) -> float:
        return self.origin_s + max(one.end_s for one in self.outcomes)


class Server:
    """A `noria serve` that answers. log: its run log."""

    def __init__(self, target: HttpTarget, log: str) -> None:
        self.log = log
        self._target = target

    async def measure(self, play: Play) -> Measured:
        """Until all is answered."""
        generator = Generator(self._target, play, _ANSWER_LIMIT_S)
        outcomes = await generator.run()
        return Measured(self.log, generator.origin_s, tuple(outcomes))

    def close(self) -> None:
        self._target.close()


async def open_servers(ports: Mapping[str, int], logs: Mapping[str, str]) -> dict[str, Server]:
    """By setting."""
    servers = {}
    for setting, port in ports.items():
        options = TargetOptions(base_url=f"http://127.0.0.1:{port}")
        servers[setting] = Server(await open_http_target(options, None, seed=7), logs[setting])
    return servers


def save(measured: Measured | Sequence[Measured], path: Path) -> None:
    """All of it or nothing: a run that is cut off leaves no half of a point."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(measured))
    draft.rename(path)


def load(path: Path) -> Measured:
    return msgspec.json.decode(path.read_bytes(), type=Measured)


def load_several(path: Path) -> list[Measured]:
    return msgspec.json.decode(path.read_bytes(), type=list[Measured])
