"""What is done to one request's logits in Python, whatever the backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from noria.sampling.masks import Masks
from noria.sampling.nonfinite import SamplingFault
from noria.sampling.params import SamplingParams
from noria.sampling.thinking import ThinkingLimit

if TYPE_CHECKING:
    from noria.sampling.params import LogitsProcessor


class Processors:
    """The logits processors of one request (callables of a user), then its masks, and the text that they see.

    Last comes the bound on its reasoning, so that nothing can keep the end marker out.
    """

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        self._processors = params.logits_processors
        self._masks = Masks(params, output_ids) if Masks.are_asked_by(params) else None
        self._thinking = ThinkingLimit(params, output_ids) if ThinkingLimit.is_asked_by(params) else None
        self._prompt_ids = tuple(prompt_ids)
        self._output_ids = list(output_ids)

    @staticmethod
    def are_asked_by(params: SamplingParams) -> bool:
        asked = (Masks.are_asked_by(params), ThinkingLimit.is_asked_by(params))
        return bool(params.logits_processors) or any(asked)

    def append(self, token_id: int) -> None:
        """Tell of a token that joined the output."""
        self._output_ids.append(token_id)
        if self._masks is not None:
            self._masks.append(token_id)
        if self._thinking is not None:
            self._thinking.append(token_id)

    def apply(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """What they make, in turn, of logits [vocab] float32, which they may change: a float32 array of ours.

        allowed: the bits (`token_masks.Masks`) of the tokens that may be chosen after that, None: all.

        Raises SamplingFault where a processor raises, or returns anything but as many numbers.
        """
        if self._processors:
            output_ids = tuple(self._output_ids)
            for processor in self._processors:
                logits = _processed(processor, self._prompt_ids, output_ids, logits)
        if self._masks is not None:
            self._masks.apply(logits)
        if self._thinking is not None:
            self._thinking.apply(logits, allowed)
        return logits


def _processed(
    processor: LogitsProcessor, prompt_ids: Sequence[int], output_ids: Sequence[int], logits: np.ndarray
) -> np.ndarray:
    """What a user's logits processor makes of logits [vocab], as a float32 array of ours."""
    name = getattr(processor, "__name__", type(processor).__name__)
    try:
        result = processor(prompt_ids, output_ids, logits)
    except (Exception, SystemExit) as error:
        raise SamplingFault(f"logits processor {name} raised {type(error).__name__}: {error}") from error
    processed: np.ndarray
    try:
        with np.errstate(over="ignore"):
            processed = np.array(result, dtype=np.float32)
    except Exception:  # whatever a foreign object's conversion raises
        processed = np.empty(())
    if processed.shape != logits.shape:
        shape = f" of shape {processed.shape}" if processed.ndim else ""
        raise SamplingFault(
            f"logits processor {name} must return an array of {logits.size} numbers, "
            f"got {type(result).__name__}{shape}"
        )
    if np.isnan(processed).any():
        raise SamplingFault(f"logits processor {name} returned logits that are NaN")
    return processed
