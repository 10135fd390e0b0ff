"""What a load comes to in time of processors, told apart by who took it: the client, or a process of the server."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields

from benchmarks.noria_server import DIRECT, HOST

_METRIC = "process_cpu_seconds_total"


@dataclass(frozen=True)
class Clocks:
    """Seconds: of the wall's clock, and of processors that each had taken by then."""

    wall_s: float
    client_s: float
    engine_s: float
    api_s: float

    def since(self, before: Clocks) -> Clocks:
        return Clocks(*(getattr(self, one.name) - getattr(before, one.name) for one in fields(self)))


@dataclass(frozen=True)
class Shares:
    """Of the time of all processors while a load ran.

    left_s: seconds of processors that the client left to all else. client_ms: what it took for a request.
    """

    client: float
    engine: float
    api: float
    left_s: float
    client_ms: float


def clocks(port: int) -> Clocks:
    """client_s: of this process. The server, with one API process, tells its own."""
    with DIRECT.open(f"http://{HOST}:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    taken = dict(line.rsplit(" ", 1) for line in lines if line.startswith(_METRIC))
    engine_s, api_s = (float(taken[f'{_METRIC}{{process="{name}"}}']) for name in ("engine", "api-0"))
    return Clocks(time.perf_counter(), time.process_time(), engine_s, api_s)


def shares_of(spent: Clocks, num_sent: int) -> Shares:
    """num_sent: by the client, to whomever."""
    whole_s = spent.wall_s * len(os.sched_getaffinity(0))
    return Shares(
        client=spent.client_s / whole_s,
        engine=spent.engine_s / whole_s,
        api=spent.api_s / whole_s,
        left_s=whole_s - spent.client_s,
        client_ms=1e3 * spent.client_s / num_sent,
    )
