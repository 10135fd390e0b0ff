"""Several futures as one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future


def all_of(futures: Sequence[Future[None]]) -> Future[None]:
    """Done when all are, with the first error among them; that one was cancelled is an error like any other."""
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
        error = next(filter(None, map(_error_of, futures)), None)
        if error is None:
            whole.set_result(None)
        else:
            whole.set_exception(error)

    for one in futures:
        one.add_done_callback(count)
    return whole


def _error_of(done: Future[None]) -> BaseException | None:
    return CancelledError() if done.cancelled() else done.exception()
