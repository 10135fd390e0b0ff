"""What makes a start quick."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH_INTERVAL_S = 0.0002


def share_interpreter() -> None:
    """Let a thread that comes back from native code have the interpreter soon, whatever others do with it.

    The default, 5 ms, would come to a fifth of a step each time that the server is busy writing when a step ends or
    begins, and to every tensor while weights load beside the import of the server.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


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
