"""Which tokens a request may choose in a step, as bits: made while the step computes, read when it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

WORD_BITS = 32


def num_words(vocab_size: int) -> int:
    """How many words hold a bit for each token."""
    return -(-vocab_size // WORD_BITS)


@dataclass(frozen=True, slots=True)
class Masks:
    """Of the requests of a step that may not choose freely.

    bits: uint32 [n, at least num_words(vocab)]; token i is bit i % 32, counted from the lowest, of word i // 32.
    rows: request id -> its row of bits, which says which tokens it may choose.
    failures: request id -> why nobody can say any more what it may choose: it fails.
    ending_ids: request id -> tokens behind which nothing can follow.
    unready: of which it is not known yet what they may choose: they sit the step out.
    """

    bits: np.ndarray
    rows: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    ending_ids: Mapping[str, frozenset[int]] = field(default_factory=dict)
    unready: frozenset[str] = frozenset()

    def is_ended_by(self, request_id: str, token_id: int) -> bool:
        """Whether the token ends the output, whatever the request's params say of endings."""
        return token_id in self.ending_ids.get(request_id, ())


_NO_BITS = np.empty((0, 0), dtype=np.uint32)
OPEN = Masks(_NO_BITS)  # of a step in which everybody may choose freely


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the requests of one call of a sampler may choose.

    bits: as in Masks. places: int32, of each request in the call its row of bits, -1 where every token is open to it.
    """

    bits: np.ndarray
    places: np.ndarray

    @staticmethod
    def everything(count: int) -> Allowed:
        return Allowed(_NO_BITS, np.full(count, -1, dtype=np.int32))

    @staticmethod
    def of(masks: Masks, request_ids: Sequence[str]) -> Allowed:
        places = [masks.rows.get(request_id, -1) for request_id in request_ids]
        return Allowed(masks.bits, np.array(places, dtype=np.int32))

    def taken(self, indices: Sequence[int]) -> Allowed:
        """The same of some of the requests."""
        return Allowed(self.bits, self.places[list(indices)])

    def row(self, index: int) -> np.ndarray | None:
        """The bits of one of the requests, None where every token is open to it."""
        place = int(self.places[index])
        return None if place < 0 else self.bits[place]


def is_allowed(bits: np.ndarray, token_id: int) -> bool:
    return bool(int(bits[token_id // WORD_BITS]) >> (token_id % WORD_BITS) & 1)


def without_forbidden(logits: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """A copy of logits [vocab] float32 that is -inf wherever the bit is not set."""
    kept = np.unpackbits(bits.view(np.uint8), count=logits.size, bitorder="little").view(bool)
    return np.where(kept, logits, np.float32(-np.inf))
