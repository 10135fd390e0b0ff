"""Whether new work may come in, and how much of it is inside."""

from __future__ import annotations

import asyncio


class Gate:
    """Counts the requests being worked on; once draining, lets no more in. For the event loop's thread alone."""

    def __init__(self) -> None:
        self._is_draining = False
        self._num_inside = 0
        self._idle_waiters: list[asyncio.Future[None]] = []

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def num_inside(self) -> int:
        return self._num_inside

    def drain(self) -> None:
        """From now on new work is refused."""
        self._is_draining = True

    def enter(self) -> None:
        self._num_inside += 1

    def leave(self) -> None:
        self._num_inside -= 1
        assert self._num_inside >= 0, f"{self._num_inside} requests inside the gate"
        if self._num_inside == 0:
            for waiter in self._idle_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle_waiters.clear()

    async def wait_until_idle(self, timeout_s: float) -> bool:
        """Whether everything inside has left within `timeout_s`."""
        if self._num_inside == 0:
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._idle_waiters.append(waiter)
        await asyncio.wait((waiter,), timeout=timeout_s)
        return self._num_inside == 0
