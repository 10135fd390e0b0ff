"""The seam to what changes logits between the model and the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np


class Adjuster(Protocol):
    def adjusted(self, rows: Mapping[str, int], logits: np.ndarray) -> tuple[np.ndarray, Mapping[str, str]]:
        """The logits [R, vocab] as they are to be sampled from, and by request id why one fails.

        rows: by request id, of those that have a decoding rule. What is given stays as it is; others' rows are the
        same in what comes back.
        """
        ...


class NoAdjuster:
    def adjusted(self, rows: Mapping[str, int], logits: np.ndarray) -> tuple[np.ndarray, Mapping[str, str]]:
        return logits, {}
