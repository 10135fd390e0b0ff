"""The outcome of resolving what was asked: the settings, the reasons and the memory sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noria.config.engine import EngineConfig


@dataclass(frozen=True, slots=True)
class Choice:
    """One value that was chosen. is_notice: it differs from what a user may count on, and should be told."""

    name: str
    value: Any
    reason: str
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Where the memory goes: budget >= process + weights + workspace + pool. Bytes, blocks and tokens."""

    total_bytes: int  # what the tightest limit allows this process
    total_source: str
    available_bytes: int  # of that, free at start
    budget_bytes: int  # what Noria as a whole may use
    process_bytes: int  # interpreter, libraries, tokenizer, server
    weights_bytes: int
    workspace_bytes: int
    block_size: int
    block_bytes: int
    num_blocks: int
    max_model_len: int

    @property
    def pool_bytes(self) -> int:
        return self.num_blocks * self.block_bytes

    @property
    def num_tokens(self) -> int:
        """Tokens that the pool holds."""
        return self.num_blocks * self.block_size

    @property
    def num_longest_requests(self) -> int:
        """How many requests of max_model_len, with nothing shared, fit at once."""
        return self.num_blocks // -(-self.max_model_len // self.block_size)


@dataclass(frozen=True, slots=True)
class Resolved:
    """is_step_open: `settle_step` has yet to tell from timings what a step takes; max_num_batched_tokens is the most
    tokens that it may come to.
    """

    config: EngineConfig
    choices: tuple[Choice, ...]
    memory: MemoryTable
    is_step_open: bool = False
