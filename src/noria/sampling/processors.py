"""A request's own logits processors: callables of a user, in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from noria.sampling.nonfinite import SamplingFault

if TYPE_CHECKING:
    from noria.sampling.params import LogitsProcessor


class Processors:
    """The processors of one request, and the text that they are shown."""

    def __init__(
        self, processors: Sequence[LogitsProcessor], prompt_ids: Sequence[int], output_ids: Sequence[int]
    ) -> None:
        self._processors = tuple(processors)
        self._prompt_ids = tuple(prompt_ids)
        self._output_ids = list(output_ids)

    def append(self, token_id: int) -> None:
        """Tell of a token that joined the output."""
        self._output_ids.append(token_id)

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """What they make, in turn, of logits [vocab] float32, which they may change: a float32 array of ours.

        Raises SamplingFault where one raises, or returns anything but as many numbers.
        """
        output_ids = tuple(self._output_ids)
        for processor in self._processors:
            logits = _processed(processor, self._prompt_ids, output_ids, logits)
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
