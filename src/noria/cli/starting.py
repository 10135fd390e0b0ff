"""How a process starts, and how it shares processors and the interpreter with others."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SWITCH_INTERVAL_S = 0.0002


def share_interpreter() -> None:
    """Let a thread that comes back from native code have the interpreter soon, whatever others do with it.

    The default, 5 ms, would come to a fifth of a step each time that the server is busy writing when a step ends or
    begins, and to every tensor while weights load beside the import of the server.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def wait_for_processors() -> None:
    """Take a processor when one is free, or is given up in its turn, and never in the middle of somebody's work.

    Where all of them compute, each message and each connection would otherwise interrupt a step at once, and all its
    threads wait for the one that is held up. The share of the processors stays the same.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep the garbage collector out: next to nothing that is made at start is garbage.

    What is there at the end is never looked at again either, or every full collection would hold a step up for as
    long as it takes to go through a tokenizer and a web framework.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
