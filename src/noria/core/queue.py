"""Requests in the scheduler's order: those that wait, and those that run."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice

from noria.core.request import Request

# A request's place in every order of the scheduler, fixed from its acceptance on; lower goes first.
OrderKey = Callable[[Request], tuple[float, int]]


class RequestQueue:
    """Requests sorted by an order key that never changes. A preempted request keeps its key, so it waits ahead
    of all that came after it.
    """

    def __init__(self, key: OrderKey) -> None:
        self.key = key
        self._entries: list[tuple[tuple[float, int], Request]] = []
        self._by_id: dict[str, Request] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in self._entries)

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
        insort(self._entries, (self.key(request), request), key=_entry_key)

    def remove(self, request: Request) -> None:
        index = bisect_left(self._entries, self.key(request), key=_entry_key)
        assert self._entries[index][1] is request, f"request {request.id} is not where its key says"
        del self._entries[index]
        del self._by_id[request.id]

    def check(self) -> None:
        keys = [key for key, _ in self._entries]
        assert keys == sorted(keys), f"queue out of order: {keys}"
        assert len(set(keys)) == len(keys), f"two requests share a place: {keys}"
        assert {request.id for request in self} == set(self._by_id), "queue and index differ"


def _entry_key(entry: tuple[tuple[float, int], Request]) -> tuple[float, int]:
    return entry[0]
