"""What a server's supervisor tells its processes, a byte each through a pipe that nobody else holds.

The pipe's end is an order too: the supervisor is gone, and a process without one must not stay.
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum


class Order(Enum):
    DRAIN = b"d"  # finish what has begun, take nothing new, end
    QUIT = b"q"  # end at once


def send_order(pipe: int, order: Order) -> None:
    """To a process that may be gone, or stopped: nobody waits for it to read."""
    with suppress(BrokenPipeError, BlockingIOError):
        os.write(pipe, order.value)


def read_order(pipe: int) -> Order:
    """The next one; waits for it."""
    content = os.read(pipe, 1)
    return Order(content) if content else Order.QUIT
