"""What a decoding rule is, for those who write one.

A rule is a class. An instance lives as long as one sequence, in a process of its own, so whatever it does harms
nobody else; it may keep what it likes between steps, but is asked anew, with the same tokens, where that process is
made again. It has one or both of the methods of `Allows` and `Adjusts`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from noria.config.tokenizer import TokenizerSpec
    from noria.tokenize.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a rule may know of the model."""

    vocab_size: int
    eos_token_ids: tuple[int, ...]
    tokenizer_spec: TokenizerSpec

    def make_tokenizer(self) -> Tokenizer:
        """The model's tokenizer; takes some time to make, so a rule keeps it."""
        from noria.tokenize.tokenizer import build_tokenizer

        return build_tokenizer(self.tokenizer_spec)


class DecodingRule(Protocol):
    """How a rule is made: arguments are the request's. What it raises here refuses the request (400)."""

    def __init__(self, arguments: Mapping[str, Any], model: ModelFacts) -> None: ...


class Allows(Protocol):
    def allowed(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int]
    ) -> Collection[int] | np.ndarray | None:
        """The tokens that may come next: ids, a bool array [vocab], or None for all. Asked while the model computes.

        Once an output is complete it allows an end token alone. What it raises ends its request with an error.
        """
        ...


class Adjusts(Protocol):
    def adjust(self, prompt_ids: Sequence[int], output_ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """The model's logits [vocab] float32, which may be changed in place, as the sampler is to have them.

        Before penalties, bias, temperature and the like. What it raises ends its request with an error.
        """
        ...
