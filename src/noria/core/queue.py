"""Requests in the scheduler's order: those that wait, and those that run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from noria.core.request import Place, Request


class RequestQueue:
    """Requests sorted by their places, which never change. A preempted request keeps its place, so it waits ahead
    of all that came after it.
    """

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._requests: list[Request] = []  # each at the index of its place
        self._by_id: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """Over those that are in it now, whoever joins or leaves meanwhile."""
        return iter(self._requests.copy())

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def get(self, request_id: str) -> Request | None:
        return self._by_id.get(request_id)

    def first(self, count: int) -> list[Request]:
        return self._requests[:count]

    def last(self) -> Request:
        return self._requests[-1]

    def push(self, request: Request) -> None:
        assert request.id not in self._by_id, f"request {request.id} is in the queue already"
        self._by_id[request.id] = request
        index = bisect_left(self._places, request.place)
        self._places.insert(index, request.place)
        self._requests.insert(index, request)

    def remove(self, request: Request) -> None:
        index = bisect_left(self._places, request.place)
        assert self._requests[index] is request, f"request {request.id} is not at its place"
        del self._places[index]
        del self._requests[index]
        del self._by_id[request.id]

    def check(self) -> None:
        places = self._places
        assert places == [request.place for request in self], f"places of others: {places}"
        assert places == sorted(places), f"queue out of order: {places}"
        assert len(set(places)) == len(places), f"two requests share a place: {places}"
        assert {request.id for request in self} == set(self._by_id), "queue and index differ"
