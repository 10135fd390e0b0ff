"""Work on threads ends, is refused or is given up; nothing keeps others waiting for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable

import pytest

from noria.server.worker_pool import NoThreadFree, WorkerPool, WorkTooLong

LONG_S = 60.0  # never reached
SHORT_S = 0.02


class Blocked:
    """Work that ends when it is let go."""

    def __init__(self, result: str = "late") -> None:
        self.started = threading.Event()
        self.let_go = threading.Event()
        self._result = result

    def __call__(self) -> str:
        self.started.set()
        assert self.let_go.wait(LONG_S)
        return self._result


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LONG_S))


def begin(pool: WorkerPool, work: Callable[[], object], limit_s: float | None = None) -> asyncio.Task[object]:
    return asyncio.ensure_future(pool.run(work, limit_s))


async def started(*work: Blocked) -> None:
    for blocked in work:
        assert await asyncio.to_thread(blocked.started.wait, LONG_S)


def test_results_and_errors_come_back() -> None:
    async def scenario() -> None:
        pool = WorkerPool("test", 2, LONG_S)
        assert await pool.run(lambda: 5) == 5
        for error in (ValueError("bad"), StopIteration(), RecursionError()):

            def fail(error: Exception = error) -> None:
                raise error

            # A coroutine cannot raise StopIteration: it arrives as the RuntimeError that Python makes of it.
            expected = RuntimeError if isinstance(error, StopIteration) else type(error)
            with pytest.raises(expected):
                await pool.run(fail)
        assert await pool.run(threading.current_thread) is not threading.current_thread()

    run(scenario)


def test_no_more_threads_than_stated_are_at_work_and_they_are_used_again() -> None:
    async def scenario() -> None:
        pool, lock = WorkerPool("test", 2, LONG_S), threading.Lock()
        running, most, threads = 0, 0, set()

        def work() -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                threads.add(threading.current_thread())
            with lock:
                running -= 1

        await asyncio.gather(*(pool.run(work) for _ in range(100)))
        assert most <= 2
        assert len(threads) <= 2
        pool.close()
        for thread in threads:
            await asyncio.to_thread(thread.join, LONG_S)
            assert not thread.is_alive()

    run(scenario)


def test_the_clock_of_work_starts_with_the_work_and_not_while_it_waits() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        now, skipped_s = loop.time, 0.0
        loop.time = lambda: now() + skipped_s  # type: ignore[method-assign]
        pool, first = WorkerPool("test", 1, 1000 * LONG_S), Blocked()
        busy = begin(pool, first)
        await started(first)
        waiting = begin(pool, lambda: "in time", LONG_S)
        await asyncio.sleep(0)
        skipped_s = 2 * LONG_S
        first.let_go.set()
        assert await waiting == "in time"
        assert await busy == "late"

    asyncio.run(scenario())


def test_work_that_finds_no_thread_in_time_is_refused_and_never_begun() -> None:
    async def scenario() -> None:
        pool, first, second = WorkerPool("test", 1, SHORT_S), Blocked(), Blocked()
        busy = begin(pool, first)
        await started(first)
        with pytest.raises(NoThreadFree):
            await pool.run(second)
        first.let_go.set()
        assert await busy == "late"
        assert await pool.run(lambda: "next") == "next"
        assert not second.started.is_set()

    run(scenario)


@pytest.mark.parametrize("max_lost", [0, 1, 3])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_hanging_work_is_replaced_as_often_as_stated_and_a_late_end_heals(
    num_threads: int, max_lost: int
) -> None:
    async def scenario() -> None:
        pool = WorkerPool("test", num_threads, SHORT_S, max_lost)
        hanging = [Blocked() for _ in range(num_threads + max_lost)]
        for left, work in reversed(list(enumerate(hanging))):
            with pytest.raises(WorkTooLong):
                await pool.run(work, SHORT_S)
            await started(work)
            if left:
                assert await pool.run(lambda: "goes on", LONG_S) == "goes on"
        with pytest.raises(NoThreadFree):
            await pool.run(lambda: "never")
        for work in hanging:
            work.let_go.set()
            assert await until_free(pool) == "free"
        assert pool._num_lost == 0
        # All places are there again, and not one more.
        filling = [Blocked() for _ in range(num_threads)]
        tasks = [begin(pool, work) for work in filling]
        await started(*filling)
        with pytest.raises(NoThreadFree):
            await pool.run(lambda: "never")
        for work in filling:
            work.let_go.set()
        await asyncio.gather(*tasks)
        assert len(pool._idle) <= num_threads

    async def until_free(pool: WorkerPool) -> str:
        num_lost = pool._num_lost
        while pool._num_lost == num_lost:
            await asyncio.sleep(0)
        return await pool.run(lambda: "free")

    run(scenario)


def test_a_caller_that_leaves_does_not_make_its_thread_free() -> None:
    async def scenario() -> None:
        pool, first = WorkerPool("test", 1, SHORT_S), Blocked()
        task = begin(pool, first)
        await started(first)
        task.cancel()
        with pytest.raises(NoThreadFree):
            await pool.run(lambda: "too early")
        first.let_go.set()
        while not pool._idle:
            await asyncio.sleep(0)
        assert await pool.run(lambda: "free") == "free"

    run(scenario)


def test_work_whose_caller_left_is_given_up_all_the_same() -> None:
    async def scenario() -> None:
        pool, first = WorkerPool("test", 1, LONG_S, max_lost=1), Blocked()
        task = begin(pool, first, SHORT_S)
        await started(first)
        task.cancel()
        assert await pool.run(lambda: "goes on") == "goes on"
        first.let_go.set()

    run(scenario)


def test_one_that_leaves_the_queue_takes_no_place_with_it() -> None:
    async def scenario() -> None:
        pool, first = WorkerPool("test", 1, LONG_S), Blocked()
        busy = begin(pool, first)
        await started(first)
        leaving = [begin(pool, lambda: "never") for _ in range(3)]
        staying = begin(pool, lambda: "served")
        await asyncio.sleep(0)
        for task in leaving:
            task.cancel()
        first.let_go.set()
        assert await busy == "late"
        assert await staying == "served"

    run(scenario)


def test_a_thread_that_cannot_be_had_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        pool = WorkerPool("test", 1, SHORT_S)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                with pytest.raises(RuntimeError, match="new thread"):
                    await pool.run(lambda: "never")
        assert await pool.run(lambda: "now") == "now"

    run(scenario)


def test_nothing_is_kept_of_work_that_has_ended() -> None:
    class Text:
        pass

    async def scenario() -> None:
        pool, text = WorkerPool("test", 1, LONG_S), Text()
        kept = weakref.ref(text)
        await pool.run(lambda text=text: None)
        del text
        while kept() is not None:
            gc.collect()
            await asyncio.sleep(0)

    run(scenario)


class Noted(Blocked):
    """Knows its thread."""

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        return super().__call__()

    def check_over(self) -> None:
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()


def test_a_pool_that_is_closed_under_work_ends_its_thread() -> None:
    async def scenario() -> None:
        pool, work = WorkerPool("test", 1, LONG_S), Noted()
        busy = begin(pool, work)
        await started(work)
        pool.close()
        work.let_go.set()
        assert await busy == "late"
        await asyncio.to_thread(work.check_over)

    run(scenario)


def test_a_loop_that_closes_under_work_ends_its_thread() -> None:
    pool, work = WorkerPool("test", 1, LONG_S), Noted()

    async def scenario() -> None:
        begin(pool, work)
        await started(work)

    run(scenario)
    work.let_go.set()
    work.check_over()
