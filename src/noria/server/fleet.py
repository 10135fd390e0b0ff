"""The API processes of one server, as one of them sees the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from noria.server.ledger import Ledger


class Peers(Protocol):
    """The other processes. For the event loop's thread."""

    def on_question(self, topic: str, answer: Callable[[bytes], bytes]) -> None:
        """What to say when another process asks about a topic."""
        ...

    async def ask(self, topic: str, content: bytes) -> Sequence[bytes]:
        """What each of the others has to say."""
        ...


class NoPeers:
    def on_question(self, topic: str, answer: Callable[[bytes], bytes]) -> None:
        pass

    async def ask(self, topic: str, content: bytes) -> Sequence[bytes]:
        return ()


def _this_process() -> Mapping[str, int]:
    return {"api-0": os.getpid()}


@dataclass(frozen=True)
class Fleet:
    """As it stands, a server of one API process.

    name: that no other API process of the server has or had; digits and dashes.
    ledger: where they write what they count; None where there is one alone.
    pids: process ids of all that make up the server, by name.
    """

    name: str = "0"
    peers: Peers = field(default_factory=NoPeers)
    ledger: Ledger | None = None
    pids: Callable[[], Mapping[str, int]] = _this_process

    @property
    def process(self) -> str:
        """What `pids` calls this process."""
        return f"api-{self.name.partition('-')[0]}"
