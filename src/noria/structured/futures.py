"""Several futures as one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future


def all_of(futures: Sequence[Future[None]]) -> Future[None]:
    """Done when all are, with the first error among them."""
    if len(futures) == 1:
        return futures[0]
    whole: Future[None] = Future()
    lock = threading.Lock()
    undone = set(futures)

    def count(done: Future[None]) -> None:
        with lock:
            undone.discard(done)
            if undone:
                return
        error = next((one.exception() for one in futures if one.exception() is not None), None)
        if error is None:
            whole.set_result(None)
        else:
            whole.set_exception(error)

    for one in futures:
        one.add_done_callback(count)
    return whole
