"""Which of several replicas gets a request."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from noria.capacity.arrivals import Arrival
from noria.capacity.replica import Replica
from noria.config.errors import ConfigError

_PREFIX_TOKENS = 64  # that requests must share to go to the same replica


class Router(Protocol):
    def choose(self, arrival: Arrival, replicas: Sequence[Replica]) -> Replica:
        """replicas: at least one, each of them advanced to the arrival's instant."""
        ...


class RoundRobin:
    """One after the other, whatever they have to do."""

    def __init__(self) -> None:
        self._num_sent = 0

    def choose(self, arrival: Arrival, replicas: Sequence[Replica]) -> Replica:
        self._num_sent += 1
        return replicas[(self._num_sent - 1) % len(replicas)]


class FewestRequests:
    """Where the fewest requests wait and run; the first among equals."""

    def choose(self, arrival: Arrival, replicas: Sequence[Replica]) -> Replica:
        return min(replicas, key=lambda replica: replica.num_open)


class FewestTokens:
    """Where the fewest tokens are known and not computed yet, then where the fewest requests are."""

    def choose(self, arrival: Arrival, replicas: Sequence[Replica]) -> Replica:
        return min(replicas, key=lambda replica: (replica.num_open_tokens, replica.num_open))


class SamePrefix:
    """Prompts that begin alike go to the same replica, so that it finds them in its cache.

    (Highest random weight: D. Thaler, C. Ravishankar, Using name-based mappings to increase hit rates, 1998.)
    """

    def choose(self, arrival: Arrival, replicas: Sequence[Replica]) -> Replica:
        beginning = repr((arrival.salt, arrival.tokens[: min(_PREFIX_TOKENS, arrival.num_prompt)])).encode()
        return max(replicas, key=lambda replica: hashlib.sha256(b"%d:" % replica.index + beginning).digest())


ROUTERS: Mapping[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-requests": FewestRequests,
    "least-tokens": FewestTokens,
    "prefix": SamePrefix,
}


def router(name: str) -> Router:
    """ConfigError for a name that nobody has."""
    if name not in ROUTERS:
        raise ConfigError(f"no router is called {name!r}; there are {', '.join(ROUTERS)}")
    return ROUTERS[name]()
