"""A supervisor of two processes that do nothing: `python support_supervised.py [SETTING ...]`.

Prints `NAME PID` as each starts, `NAME drains` when it is told to. Settings: `engine-fails` and `api-fails` raise a
ConfigError as they start; `engine-fails-again` from its second start on; `api-stays` does not obey DRAIN;
`engine-hangs` says so from the start; `engine-sticks` never
comes up, and `engine-sticks-again` not at its second start; `api-rests` is started again after an hour.
"""

from __future__ import annotations

import logging
import mmap
import os
import signal
import sys

from noria.cli.restarts import Restarts
from noria.cli.supervisor import Role, Supervisor
from noria.config.errors import ConfigError
from noria.engine.orders import Order, read_order

STARTED, STUCK = 1, 2


def main(settings: list[str]) -> int:
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started with
    starts, told = (memoryview(mmap.mmap(-1, 16)).cast("q") for _ in range(2))
    roles = [role(index, name, starts, told, settings) for index, name in enumerate(("engine", "api"))]
    return Supervisor(roles, drain_s=60).run()


def role(index: int, name: str, starts: memoryview, told: memoryview, settings: list[str]) -> Role:
    """starts: how often each was started. told: STARTED or STUCK once it has said so; what is to be ended then is not
    ended before.
    """
    up = memoryview(mmap.mmap(-1, 8)).cast("q")

    def work(orders: int) -> int:
        if f"{name}-fails" in settings or (f"{name}-fails-again" in settings and starts[index] > 1):
            raise ConfigError(f"{name} cannot work")
        if f"{name}-sticks" in settings or (f"{name}-sticks-again" in settings and starts[index] == 2):
            say(f"{name} {os.getpid()}")
            told[index] = STUCK
            signal.pause()
        up[0] = 1
        say(f"{name} {os.getpid()}")
        told[index] = STARTED
        while (order := read_order(orders)) is Order.DRAIN:
            say(f"{name} drains")
            if f"{name}-stays" not in settings:
                return 0
        say(f"{name} quits")
        return 0 if order is Order.QUIT else 9

    def on_start() -> None:
        up[0] = told[index] = 0
        starts[index] += 1

    return Role(
        name,
        work,
        on_start=on_start,
        on_end=lambda: None,
        is_up=lambda: bool(up[0]),
        is_hung=lambda: f"{name}-hangs" in settings and starts[index] == 1 and set(told) == {STARTED},
        is_late=lambda age_s: age_s > 0.5 and told[index] == STUCK,
        drains=name == "api",
        restarts=Rest() if f"{name}-rests" in settings else Restarts(),
    )


class Rest(Restarts):
    def next_delay_s(self, now_s: float, was_up: bool) -> float | None:
        return 3600.0


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
