"""Simulations beside each other: a process for each processor."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool
from types import TracebackType
from typing import Any, Generic, TypeVar

from noria.config.hardware import probe_cpu

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers(Generic[Task, Result]):
    """Processes that do `work`, one task at a time each. A context manager: they end with it.

    They are forked, so `work` may hold whatever this process has; tasks and results cross between processes. Make them
    before anything that draws or computes on threads. With one processor, or one task, the work is done here.
    """

    def __init__(self, work: Callable[[Task], Result], num_tasks: int) -> None:
        self._work = work
        self._num = min(probe_cpu().num_cpus, num_tasks)
        self._pool: Pool | None = None

    def __enter__(self) -> Workers[Task, Result]:
        if self._num > 1:
            with (
                warnings.catch_warnings()
            ):  # newer Pythons warn of forks beside threads; work needs none of them
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pool = get_context("fork").Pool(self._num, _begin, (self._work,))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None

    def each(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Their results, in their order, each as soon as it and those before it are there. Raises what `work` does."""
        if self._pool is None:
            return map(self._work, tasks)
        return self._pool.imap(_do, tasks)


_work: Callable[[Any], Any] | None = None  # of a worker, which has one for its whole life


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; whoever started them ends them


def _do(task: Any) -> Any:
    assert _work is not None
    return _work(task)
