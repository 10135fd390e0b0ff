"""Which requests have run out of time. No timers: the loop asks before it plans a step."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_SLACK = 64  # entries of requests that have ended, before a clean-up is worth it


class Deadlines:
    """Deadlines of open requests, in seconds of the engine clock. Memory follows the open requests."""

    def __init__(self) -> None:
        self._by_id: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # may still name requests that have ended

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, request_id: str, deadline_s: float) -> None:
        self._by_id[request_id] = deadline_s
        heappush(self._heap, (deadline_s, request_id))

    def forget(self, request_id: str) -> None:
        """The request has ended, with or without a deadline."""
        if self._by_id.pop(request_id, None) is None:
            return
        if len(self._heap) > 2 * len(self._by_id) + _SLACK:
            self._heap = [(deadline_s, name) for name, deadline_s in self._by_id.items()]
            heapify(self._heap)

    def take_due(self, now_s: float) -> list[str]:
        """The open requests whose deadline has come, each once."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_s:
            deadline_s, request_id = heappop(self._heap)
            if self._by_id.get(request_id) == deadline_s:
                del self._by_id[request_id]
                due.append(request_id)
        return due
