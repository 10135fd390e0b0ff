"""The order of things: in each round every engine has each launch once, in an order that rotates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.peers.engines import Engine, Session
from benchmarks.peers.points import Launch, Measured, Visit
from benchmarks.peers.traffic import EngineFailed, OnDone
from benchmarks.peers.workload import Sizes, warm_up

# An engine that starts faster than this is started several times; one start of a slower one must do.
QUICK_START_S = 10.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One engine's launch in one round (from 0)."""

    round: int
    launch: Launch
    engine: Engine


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a turn brought at one point. measured is None where it failed, and `failure` says why."""

    round: int
    engine: str
    point: str
    begin_s: float  # of the epoch
    starts_s: tuple[float, ...]
    measured: Measured | None
    failure: str = ""


# Progress: what is being done, and how many of its requests have been answered.
Tell = Callable[[str], None]


def turns(engines: Sequence[Engine], launches: Sequence[Launch], num_rounds: int) -> list[Turn]:
    order = []
    for round_ in range(num_rounds):
        for number, launch in enumerate(launches):
            first = (round_ + number) % len(engines)
            order += [Turn(round_, launch, engine) for engine in (*engines[first:], *engines[:first])]
    return order


def take(turn: Turn, sizes: Sizes, seed: int, tell: Tell, record: Callable[[Outcome], None]) -> None:
    """Start the engine, measure the launch's points, end the engine. A failure is an outcome of each point left.

    Each round has prompts of its own, the same for all engines.
    """
    left = list(turn.launch.points)
    starts: list[float] = []
    begin_s = time.time()

    def conclude(measured: Measured | None, failure: str = "") -> None:
        name = left.pop(0).name
        record(Outcome(turn.round, turn.engine.name, name, begin_s, tuple(starts), measured, failure))

    try:
        with ExitStack() as stack:
            session = _started(turn, starts, stack, tell)
            session.play(warm_up(), lambda: None)
            while left:
                count = _counter(f"{turn.engine.name}: {left[0].title}", tell)
                visit = Visit(session, sizes, seed + turn.round, tuple(starts), count)
                conclude(left[0].measure(visit))
    except EngineFailed as error:
        while left:
            conclude(None, str(error))


def _started(turn: Turn, starts: list[float], stack: ExitStack, tell: Tell) -> Session:
    """The session of the last start; how long each took is added to `starts`."""
    while True:
        tell(f"{turn.engine.name}: starting")
        session = stack.enter_context(turn.engine.start(turn.launch.situation))
        starts.append(session.ready_s)
        if len(starts) >= turn.launch.num_starts or session.ready_s > QUICK_START_S:
            return session
        stack.close()


def _counter(what: str, tell: Tell) -> OnDone:
    done = 0

    def on_done() -> None:
        nonlocal done
        done += 1
        tell(f"{what}, {done} answered")

    tell(what)
    return on_done
