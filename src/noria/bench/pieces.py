"""What a prompt is made of, before it has tokens: pieces with names.

Two prompts that begin with the same pieces begin with the same tokens, so shared prefixes, turns of a conversation and
the block hashes of a trace are all said the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """The first `num_tokens` tokens of an endless text with a name. role: who says it, where that is asked."""

    name: str
    num_tokens: int
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Planned:
    """One request that shall be sent.

    pieces: its prompt; empty where `text` is given, whose length only the server knows.
    num_output: tokens that it shall generate. session, turn: its conversation; a turn after the first is sent
    `pause_s` after the answer before it has come, unless the load has instants for every request.
    """

    index: int
    pieces: tuple[Piece, ...]
    num_output: int
    text: str | None = None
    session: str | None = None
    turn: int = 0
    pause_s: float = 0.0

    @property
    def num_prompt(self) -> int | None:
        """Tokens of the prompt; None where only the server knows."""
        return None if self.text is not None else sum(piece.num_tokens for piece in self.pieces)


def sharing_ratio(requests: Iterable[Planned]) -> float:
    """Share of prompt tokens that an endless prefix cache would have found, in the order of the requests."""
    seen: dict[bytes, int] = {}  # chain of whole pieces -> longest first piece after it, by name
    num_tokens = num_shared = 0
    for request in requests:
        is_chained, chain = True, b""
        for piece in request.pieces:
            chain = hashlib.blake2b(chain + piece.name.encode(), digest_size=16).digest()
            known = seen.get(chain, 0) if is_chained else 0
            num_tokens += piece.num_tokens
            num_shared += min(known, piece.num_tokens)
            seen[chain] = max(seen.get(chain, 0), piece.num_tokens)
            is_chained = known >= piece.num_tokens
            chain += piece.num_tokens.to_bytes(8, "little")
    return num_shared / num_tokens if num_tokens else 0.0


def with_lengths(requests: Sequence[Planned]) -> list[int]:
    """Prompt lengths of those that have one."""
    return [count for request in requests if (count := request.num_prompt) is not None]
