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
    """What `own` collects, added up over all API processes of a ledger; of what `seen` collects the highest.

    Every process sees the same of the engine, but for what passed while it was not there.
    """

    def __init__(self, ledger: Ledger, seen: Collector, own: Collector) -> None:
        self._ledger = ledger
        self._seen = seen
        self._own = own

    def collect(self) -> Iterator[Metric]:
        entry = self._write()
        others = self._ledger.others()
        yield from combined(entry.seen, [other.seen for other in others], max)
        yield from combined(entry.own, [other.own for other in others], operator.add)

    async def follow(self) -> None:
        """Keep what the others read up to date, for ever."""
        while True:
            await asyncio.sleep(_WRITE_EVERY_S)
            self._write()

    def _write(self) -> Entry:
        before = self._ledger.before
        entry = Entry(
            combined(self._seen.collect(), [before.seen], operator.add),
            combined(self._own.collect(), [before.own], operator.add),
        )
        try:
            self._ledger.write(entry)
        except OSError as error:
            logger.error("the other API processes cannot be told what this one counts: %s", error.strerror)
        return entry
