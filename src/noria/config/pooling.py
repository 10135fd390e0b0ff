"""What may be made of a prompt that is read and not continued, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class Pooling(str, Enum):
    """Which of a prompt's hidden states count."""

    LAST = "last"  # the last token's
    CLS = "cls"  # the first token's
    MEAN = "mean"  # the mean over all tokens
    ALL = "all"  # each token's, by itself


class Head(str, Enum):
    """What the states are made into."""

    STATE = "state"  # themselves
    CLASSES = "classes"  # a number for each label, by the model's own classifier
    TOKENS = "tokens"  # the logits of some tokens, as the last position has them


class Finish(str, Enum):
    """What is done with the numbers in the end."""

    NONE = "none"
    NORMALIZE = "normalize"  # divided by their Euclidean length
    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


@dataclass(frozen=True, slots=True)
class PoolingParams:
    """What to make of one prompt. Nothing is sampled: it ends with the step that reads its last token.

    token_ids: with Head.TOKENS, whose logits; such a head knows the last position alone.
    dimensions: only so many leading numbers of a state are kept, None for all.
    num_first: the tokens from that place on are a second text (token type 1); 0: there is one text.
    """

    pooling: Pooling = Pooling.LAST
    head: Head = Head.STATE
    finish: Finish = Finish.NONE
    token_ids: tuple[int, ...] = ()
    dimensions: int | None = None
    num_first: int = 0

    # What every request's parameters tell: see core.request.Params.
    n: ClassVar[int] = 1
    max_tokens: ClassVar[int] = 0
    runs_to_limit: ClassVar[bool] = True

    @property
    def is_constrained(self) -> bool:
        """Whether each step has to be told which tokens may be chosen: none ever is."""
        return False

    @property
    def needs_every_position(self) -> bool:
        """Whether its prompt must be computed from its first token on: what the prefix cache has are no states."""
        return self.pooling is not Pooling.LAST
