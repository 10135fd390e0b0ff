"""Simulations beside each other: a process for each processor."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Generic, TypeVar

from noria.config.errors import EngineError
from noria.config.hardware import probe_cpu

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers(Generic[Task, Result]):
    """Processes that do `work` for each of the tasks. A context manager: they end with it.

    They are forked as it is entered, so `work` may hold whatever this process has; tasks and results cross between
    processes. Enter it before anything that draws or computes on threads. With one processor, or one task, the work is
    done here.
    """

    def __init__(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> None:
        self._work = work
        self._tasks = tasks
        self._pool: ProcessPoolExecutor | None = None
        self._coming: list[Future[Result]] = []

    def __enter__(self) -> Workers[Task, Result]:
        count = min(probe_cpu().num_cpus, len(self._tasks))
        if count > 1:
            self._pool = ProcessPoolExecutor(count, get_context("fork"), _begin, (self._work,))
            with warnings.catch_warnings():
                # Newer Pythons warn of forks beside threads; the work needs none of them.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._coming = [self._pool.submit(_do, task) for task in self._tasks]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:  # what is under way is waited for, the rest is not begun
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def results(self) -> Iterator[Result]:
        """In the order of the tasks, each as soon as it and those before it are there.

        Raises what `work` does, and EngineError when a process ends by itself.
        """
        if self._pool is None:
            yield from map(self._work, self._tasks)
            return
        try:
            for one in self._coming:
                yield one.result()
        except BrokenProcessPool:
            raise EngineError(
                f"one of the processes that simulate was ended, perhaps for want of memory: each of up to "
                f"{probe_cpu().num_cpus} of them holds a whole load"
            ) from None


_work: Callable[[Any], Any] | None = None  # of a worker, which has one for its whole life


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; whoever started them ends them


def _do(task: Any) -> Any:
    assert _work is not None
    return _work(task)
