"""A rule is a class: made once a sequence, from the arguments of its request, then asked at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noria.rules.api import ModelFacts


class NoRepeatNgram:
    """Never writes n tokens a second time. Arguments: {"n": 3}"""

    def __init__(self, arguments: Mapping[str, Any], model: ModelFacts) -> None:
        self.n = arguments.get("n", 3)
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n must be a whole number of at least 1, got {self.n!r}")
        self.vocab_size = model.vocab_size

    def allowed(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> np.ndarray:
        """Asked while the model computes: the tokens that may come next, here as a flag for each."""
        flags = np.ones(self.vocab_size, bool)
        beginning = tuple(output_ids[len(output_ids) - self.n + 1 :])
        for start in range(len(output_ids) - self.n + 1):
            *head, last = output_ids[start : start + self.n]
            if tuple(head) == beginning:
                flags[last] = False
        return flags


class WindDown:
    """Brings an output to its end: after so many tokens, the end token gains with each. Arguments: {"after": 40}"""

    def __init__(self, arguments: Mapping[str, Any], model: ModelFacts) -> None:
        self.after = int(arguments["after"])
        self.end_ids = list(model.eos_token_ids)

    def adjust(self, prompt_ids: Sequence[int], output_ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """Asked after the model has computed: its logits, as the sampler is to see them."""
        logits[self.end_ids] += max(0, len(output_ids) - self.after)
        return logits
