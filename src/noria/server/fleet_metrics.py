"""The same measurements whichever API process is asked for them."""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from noria.server.ledger import Entry, Ledger, combined

logger = logging.getLogger("noria.server")

_WRITE_EVERY_S = 1.0


class FleetMetrics(Collector):
    """What `own` collects, added up over all API processes of a ledger; of what `seen` collects the highest: as of the
    last `refresh`. For the event loop's thread.

    Every process sees the same of the engine, but for what passed while it was not there.
    """

    def __init__(self, ledger: Ledger, seen: Collector, own: Collector) -> None:
        self._ledger = ledger
        self._seen = seen
        self._own = own
        self._entry = Entry()
        self._others: list[Entry] = []
        self._exchanging = asyncio.Lock()  # what is written later counts more

    async def refresh(self) -> None:
        """Before anything is told: write what this process has counted, and read what the others have.

        Files are for another thread: a disk may keep a writer waiting for seconds, and here streams are waiting.
        """
        async with self._exchanging:
            entry = self._counted()
            self._others = await asyncio.to_thread(self._exchange, entry)
            self._entry = entry

    def collect(self) -> Iterator[Metric]:
        yield from combined(self._entry.seen, [other.seen for other in self._others], max)
        yield from combined(self._entry.own, [other.own for other in self._others], operator.add)

    async def follow(self) -> None:
        """Keep what the others read up to date, for ever."""
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            await self.refresh()

    def _counted(self) -> Entry:
        before = self._ledger.before
        return Entry(
            combined(self._seen.collect(), [before.seen], operator.add),
            combined(self._own.collect(), [before.own], operator.add),
        )

    def _exchange(self, entry: Entry) -> list[Entry]:
        """What the others have written. On a thread of its own."""
        try:
            self._ledger.write(entry)
        except OSError as error:
            logger.error("the other API processes cannot be told what this one counts: %s", error.strerror)
        return self._ledger.others()
