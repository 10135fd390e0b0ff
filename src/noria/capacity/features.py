"""What a step's time depends on: counts, and nothing that a plan does not say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le
from typing import NamedTuple

from noria.core.plan import Work


class StepFeatures(NamedTuple):
    """Counts of one step.

    num_tokens: rows of every matrix product but the last. num_sampled: rows of the last one, the logits.
    chunk_context: sum over chunks of more than one token of chunk * (context + chunk / 2). decode_context: sum over
    single tokens of what they attend to.
    """

    num_tokens: int
    num_sampled: int
    num_seqs: int
    chunk_context: float
    decode_context: int


def features_of(work: Iterable[Work]) -> StepFeatures:
    num_tokens = num_sampled = num_singles = decode_context = num_chunks = 0
    chunk_context = 0.0
    for share in work:
        num_sampled += share.samples
        num_new = share.num_new
        if num_new == 1:
            num_singles += 1
            decode_context += share.num_computed
        else:
            num_chunks += 1
            num_tokens += num_new
            chunk_context += num_new * (share.num_computed + num_new / 2)
    return StepFeatures(
        num_tokens + num_singles,
        num_sampled,
        num_singles + num_chunks,
        chunk_context,
        decode_context + num_singles,
    )


class Box(NamedTuple):
    """The region that measured steps span, by feature."""

    lowest: StepFeatures
    highest: StepFeatures

    def holds(self, features: StepFeatures) -> bool:
        return all(map(le, self.lowest, features)) and all(map(le, features, self.highest))


def box_of(rows: Sequence[StepFeatures]) -> Box:
    """rows: at least one."""
    columns = list(zip(*rows, strict=True))
    return Box(StepFeatures(*map(min, columns)), StepFeatures(*map(max, columns)))
