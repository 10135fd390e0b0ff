"""Drives a model as a scheduler would: sequences in paged blocks handed out in random order, any mix a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from noria.kernels.batch import Batch, Outputs


class RunsBatches(Protocol):
    def forward(self, batch: Batch) -> Outputs: ...


class Driver:
    """Sequences by their index, with how far each one is. Blocks come from a shuffled pool."""

    def __init__(self, model: RunsBatches, block_size: int, num_blocks: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self._model = model
        self._block_size = block_size
        self._free = self.rng.permutation(num_blocks).tolist()
        self._tokens: list[list[int]] = []
        self._num_first: list[int] = []
        self._tables: list[list[int]] = []
        self._computed: list[int] = []
        self._outputs: list[list[Outputs]] = []

    def add(self, token_ids: Sequence[int], num_first: int | None = None) -> int:
        """A sequence to compute; -> its index. num_first: tokens of type 0, of a pair of texts; None: all."""
        self._tokens.append(list(token_ids))
        self._num_first.append(len(token_ids) if num_first is None else num_first)
        self._tables.append([])
        self._computed.append(0)
        self._outputs.append([])
        return len(self._tokens) - 1

    def add_sharing(self, first: int, token_ids: Sequence[int]) -> int:
        """A sequence that continues what `first` has computed, in the same blocks, all of them full."""
        num_shared = self._computed[first]
        assert num_shared % self._block_size == 0, (
            f"{num_shared} tokens do not fill blocks of {self._block_size}"
        )
        sequence = self.add([*self._tokens[first][:num_shared], *token_ids])
        self._tables[sequence] = self._tables[first][: num_shared // self._block_size]
        self._computed[sequence] = num_shared
        return sequence

    def table(self, sequence: int) -> list[int]:
        """The blocks of a sequence, in order."""
        return list(self._tables[sequence])

    def take_block(self) -> int:
        """A free block, for the caller to use."""
        return self._free.pop()

    def replace_blocks(self, sequence: int, blocks: Sequence[int]) -> None:
        self._tables[sequence] = list(blocks)

    def remaining(self, sequence: int) -> int:
        return len(self._tokens[sequence]) - self._computed[sequence]

    def unfinished(self) -> list[int]:
        return [sequence for sequence in range(len(self._tokens)) if self.remaining(sequence)]

    def logits(self, sequence: int) -> np.ndarray:
        """Of all its positions computed so far, [n, vocabulary]."""
        return np.concatenate([outputs.logits for outputs in self._outputs[sequence]])

    def hidden(self, sequence: int) -> np.ndarray:
        """Of all its positions computed so far, [n, hidden size]."""
        return np.concatenate([outputs.hidden for outputs in self._outputs[sequence]])

    def step(self, shares: Sequence[tuple[int, int]]) -> None:
        """Compute the next n tokens of each (sequence, n), in the order given, logits and states of all of them."""
        batch = self.batch(shares)
        outputs = self._model.forward(batch)
        ends = np.cumsum([num_new for _, num_new in shares])[:-1]
        parts = zip(np.split(outputs.logits, ends), np.split(outputs.hidden, ends), strict=True)
        for (sequence, num_new), part in zip(shares, parts, strict=True):
            self._computed[sequence] += num_new
            self._outputs[sequence].append(Outputs(*part))

    def advance(self, sequence: int, num_tokens: int) -> np.ndarray:
        """The logits of the next tokens, which are not kept: for texts whose logits would not fit."""
        logits = self._model.forward(self.batch([(sequence, num_tokens)])).logits
        self._computed[sequence] += num_tokens
        return logits

    def preempt(self, sequence: int) -> None:
        """Give its blocks to whoever comes next; all of it is to be computed again."""
        self._free.extend(self.rng.permutation(self._tables[sequence]).tolist())
        self._tables[sequence] = []
        self._computed[sequence] = 0
        self._outputs[sequence] = []

    def run_alone(self, sequence: int) -> np.ndarray:
        """All that remains, in one go and by itself; -> its logits."""
        self.step([(sequence, self.remaining(sequence))])
        return self.logits(sequence)

    def run_mixed(self, longest_chunk: int) -> None:
        """Everything to its end: random subsets, random chunks, random order."""
        while waiting := self.unfinished():
            chosen = self.rng.permutation(waiting)[: self.rng.integers(1, len(waiting) + 1)].tolist()
            bounds = [min(longest_chunk, self.remaining(sequence)) for sequence in chosen]
            self.step(
                [(s, int(self.rng.integers(1, most + 1))) for s, most in zip(chosen, bounds, strict=True)]
            )

    def batch(self, shares: Sequence[tuple[int, int]]) -> Batch:
        """Takes the blocks that the shares need."""
        counts = [num_new for _, num_new in shares]
        starts = [self._computed[sequence] for sequence, _ in shares]
        spans = [(s, start, start + n) for (s, n), start in zip(shares, starts, strict=True)]
        for sequence, _, end in spans:
            while len(self._tables[sequence]) * self._block_size < end:
                self._tables[sequence].append(self._free.pop())
        tables = [self._tables[sequence] for sequence, _ in shares]
        table = np.zeros((len(shares), max(map(len, tables))), dtype=np.int32)
        for row, blocks in zip(table, tables, strict=True):
            row[: len(blocks)] = blocks
        positions = np.concatenate([np.arange(start, end) for _, start, end in spans])
        owner = np.repeat(np.arange(len(shares)), counts)
        slots = table[owner, positions // self._block_size] * self._block_size + positions % self._block_size
        return Batch(
            token_ids=np.concatenate([self._tokens[s][start:end] for s, start, end in spans]).astype(
                np.int32
            ),
            token_types=np.concatenate(
                [np.arange(start, end) >= self._num_first[s] for s, start, end in spans]
            ).astype(np.int32),
            positions=positions.astype(np.int32),
            slots=slots.astype(np.int32),
            query_starts=np.cumsum([0, *counts]).astype(np.int32),
            context_lens=np.array([end for _, _, end in spans], dtype=np.int32),
            block_tables=table,
            logit_rows=np.arange(sum(counts), dtype=np.int32),
            hidden_rows=np.arange(sum(counts), dtype=np.int32),
        )
