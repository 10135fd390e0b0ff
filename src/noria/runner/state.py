"""What the runner knows of a request between steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from noria.core.plan import NewRequest, Work
from noria.runner.duties import Duty


class IntList:
    """A list of int32 that grows at its end and reads as an array."""

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._array = np.array(tuple(values), dtype=np.int32)
        self._size = self._array.size

    def __len__(self) -> int:
        return self._size

    def extend(self, values: Sequence[int]) -> None:
        size = self._size + len(values)
        if size > self._array.size:
            grown = np.empty(max(size, 2 * self._array.size, 16), dtype=np.int32)
            grown[: self._size] = self.view()
            self._array = grown
        self._array[self._size : size] = values
        self._size = size

    def append(self, value: int) -> None:
        if self._size == self._array.size:
            self.extend((value,))
        else:
            self._array[self._size] = value
            self._size += 1

    def view(self) -> np.ndarray:
        """int32 [len], valid until the list grows."""
        return self._array[: self._size]


class RequestState:
    """One request: its tokens, its blocks, and what it wants of the model's rows.

    # [0, num_computed) has KV in `blocks`; [num_computed, len(tokens)) is known and has none yet
    """

    def __init__(self, request: NewRequest, vocab_size: int, duty: Duty) -> None:
        known = len(request.token_ids)
        assert 0 < request.num_prompt <= known, (
            f"{request.request_id}: {request.num_prompt=} of {known} tokens"
        )
        self.tokens = IntList(request.token_ids)
        lowest, highest = int(self.tokens.view().min()), int(self.tokens.view().max())
        assert lowest >= 0 and highest < vocab_size, (
            f"{request.request_id}: {lowest=} {highest=} {vocab_size=}"
        )
        self.request_id = request.request_id
        self.duty = duty
        self.blocks = IntList()
        self.num_computed: int | None = None  # None until the first work says what the prefix cache had

    def advance(self, work: Work, block_size: int) -> None:
        """Take in a share of work: more blocks, more computed tokens. Asserts that it follows on the last."""
        if work.new_blocks:
            self.blocks.extend(work.new_blocks)
        known, room = len(self.tokens), len(self.blocks) * block_size
        end = work.num_computed + work.num_new
        expected = work.num_computed if self.num_computed is None else self.num_computed
        assert work.num_computed == expected >= 0, f"{work}, but {self.num_computed=}"
        assert work.num_new > 0 and end <= known, f"{work}, but {known=} tokens"
        assert end <= room, f"{work}, but the blocks hold {room} tokens"
        assert not work.samples or end == known, f"{work} samples before the last of {known=} tokens"
        self.num_computed = end

    def retreat(self) -> None:
        """Have the last token computed once more: nothing was sampled behind it."""
        assert self.num_computed, f"{self.num_computed=}"
        self.num_computed -= 1
