"""Who gets which deltas."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from noria.core.outputs import Delta
from noria.engine.client import Sink

log = logging.getLogger(__name__)


class Sinks:
    """Routes the deltas of a step to the sinks that their requests were submitted with."""

    def __init__(self) -> None:
        self._by_request: dict[str, Sink] = {}

    def register(self, request_id: str, sink: Sink) -> None:
        self._by_request[request_id] = sink

    def knows(self, request_id: str) -> bool:
        """It has not had its last delta."""
        return request_id in self._by_request

    def forget(self, request_id: str) -> None:
        """It was never queued after all."""
        self._by_request.pop(request_id, None)

    def open_requests(self) -> list[str]:
        """Requests that have not had their last delta."""
        return list(self._by_request)

    def publish(self, deltas: Sequence[Delta]) -> list[str]:
        """Hand each sink its deltas in one call. A sink that raises loses its requests and nobody else's.

        Returns the requests whose sink raised: nobody listens to them any more.
        """
        groups: dict[Sink, list[Delta]] = {}
        for delta in deltas:
            sink = self._by_request.get(delta.request_id)
            if sink is not None:
                groups.setdefault(sink, []).append(delta)
            if delta.finish is not None:
                self._by_request.pop(delta.request_id, None)
        orphans: list[str] = []
        for sink, news in groups.items():
            try:
                sink(news)
            except Exception:
                log.exception("a listener raised; its requests are cancelled")
                orphans += [request_id for request_id, owner in self._by_request.items() if owner == sink]
        for request_id in orphans:
            del self._by_request[request_id]
        return orphans
