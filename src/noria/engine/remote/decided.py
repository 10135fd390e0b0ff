"""Verdicts that were not known at once, on their way to the thread that may send them."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Decided(Generic[_Item]):
    """Put in on any thread, taken out on one, whose poller finds `descriptor` readable."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self.descriptor, self._bell = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._bell, False)

    def put(self, item: _Item) -> None:
        self._items.append(item)
        with suppress(BlockingIOError):  # it rings already
            os.write(self._bell, b"!")

    def take(self) -> list[_Item]:
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)
        return [self._items.popleft() for _ in range(len(self._items))]
