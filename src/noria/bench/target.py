"""What can be measured: a server over HTTP, or an engine in this process. Both live on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from noria.bench.outcome import Status
from noria.bench.pieces import Planned
from noria.bench.texts import Count


@dataclass(frozen=True, slots=True)
class Answer:
    """Fields as those of Outcome, but instants are time.perf_counter()."""

    sent_s: float
    chunk_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    end_s: float
    status: Status
    num_prompt: int
    num_output: int
    num_planned: int | None
    num_cached: int | None = None
    queue_wait_s: float | None = None
    num_preemptions: int | None = None
    error: str = ""
    text: str = ""


OnAnswer = Callable[[Answer], None]


class Flight(Protocol):
    """A request that has been sent. has_token: its first token has come."""

    @property
    def has_token(self) -> bool: ...

    def end(self, status: Status) -> None:
        """End it early; its answer comes at once, with this status."""
        ...


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is known of a target. fingerprint: of engine, settings and model. is_noria: it has Noria's metrics."""

    name: str
    max_model_len: int | None
    is_noria: bool
    fingerprint: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """The server's state at one instant. Counters are totals since it started; None where it does not tell."""

    time_s: float
    kv_util: float
    num_running: float
    num_waiting: float
    kv_cached: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    computed_tokens: float | None = None
    recomputed_tokens: float | None = None
    queue_wait_s: float | None = None  # sum over requests
    queue_waits: float | None = None  # how many


class Target(Protocol):
    facts: TargetFacts
    count_tokens: Count | None

    def send(self, planned: Planned, on_answer: OnAnswer) -> Flight:
        """Begin a request. The answer comes on the loop's thread, later."""
        ...

    async def sample(self) -> Sample | None:
        """The state now, at a time.perf_counter() instant; None where there is nothing to ask."""
        ...

    def steps(self) -> list[dict[str, Any]]:
        """A record of every step of an engine in this process; none else."""
        ...

    def close(self) -> None: ...
