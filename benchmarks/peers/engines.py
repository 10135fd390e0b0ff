"""What the benchmark needs of an engine, and the three situations that it is started for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from benchmarks.peers.traffic import OnDone, Play, Reply

NORIA = "noria"
PEERS = ("openvino", "llama.cpp", "vllm")
ENGINES = (NORIA, *PEERS)

MAX_MODEL_LEN = 4096
MAX_NUM_SEQS = 64
LEAN_KV_TOKENS = 16384


class Situation(Enum):
    """LOAD: up to 32 requests at once. FEW: a few long ones. LEAN: room for LEAN_KV_TOKENS tokens only."""

    LOAD = "load"
    FEW = "few"
    LEAN = "lean"


class Session(Protocol):
    """A started engine that answers. ready_s: how long that took (a server: from process start)."""

    ready_s: float

    def play(self, groups: Play, on_done: OnDone) -> list[Reply]:
        """The replies to all requests, by group and index. Raises EngineFailed."""

    def resident_bytes(self) -> int:
        """Of the engine's processes together."""


@dataclass(frozen=True)
class Command:
    """environment: what is added to this process's own."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        return " ".join([f"{name}={value}" for name, value in self.environment.items()] + [*self.arguments])


class Engine(Protocol):
    """title: for the table, with what a reader must know to judge its figures."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def version(self) -> str: ...

    def start(self, situation: Situation) -> AbstractContextManager[Session]:
        """Ready to answer when entered, ended when left. Raises EngineFailed."""

    def command(self, situation: Situation) -> Command:
        """For the record."""
