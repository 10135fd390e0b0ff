"""A thread that does one thing after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Worker(Generic[Task, Result]):
    """Runs `work` on every task, in order, on a daemon thread.

    (An executor's threads refuse work once the interpreter begins to exit, in the middle of a step.)
    """

    def __init__(self, name: str, work: Callable[[Task], Result]) -> None:
        self._work = work
        self._tasks: SimpleQueue[tuple[Task, Future[Result]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> Future[Result]:
        future: Future[Result] = Future()
        self._tasks.put((task, future))
        return future

    def close(self) -> None:
        """Finish the tasks submitted and end the thread."""
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (entry := self._tasks.get()) is not None:
            task, future = entry
            try:
                future.set_result(self._work(task))
            except BaseException as error:
                future.set_exception(error)
