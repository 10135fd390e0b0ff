"""Requests in the scheduler's order: those that wait, and those that run."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from noria.core.request import Place, Request


class RequestQueue:
    """Requests sorted by their places, which never change. A preempted request keeps its place, so it waits ahead
    of all that came after it.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Place, Request]] = []
        self._by_id: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        """Over those that are in it now, whoever joins or leaves meanwhile."""
        return iter([request for _, request in self._entries])

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def get(self, request_id: str) -> Request | None:
        return self._by_id.get(request_id)

    def first(self, count: int) -> list[Request]:
        return [request for _, request in islice(self._entries, count)]

    def last(self) -> Request:
        return self._entries[-1][1]

    def push(self, request: Request) -> None:
        assert request.id not in self._by_id, f"request {request.id} is in the queue already"
        self._by_id[request.id] = request
        insort(self._entries, (request.place, request), key=_entry_key)

    def remove(self, request: Request) -> None:
        index = bisect_left(self._entries, request.place, key=_entry_key)
        assert self._entries[index][1] is request, f"request {request.id} is not at its place"
        del self._entries[index]
        del self._by_id[request.id]

    def check(self) -> None:
        places = [place for place, _ in self._entries]
        assert places == sorted(places), f"queue out of order: {places}"
        assert len(set(places)) == len(places), f"two requests share a place: {places}"
        assert {request.id for request in self} == set(self._by_id), "queue and index differ"


def _entry_key(entry: tuple[Place, Request]) -> Place:
    return entry[0]
