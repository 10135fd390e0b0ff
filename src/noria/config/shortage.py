"""A model that does not fit in memory: what it needs, what there is, and which settings would fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from noria.config.budget import ACCELERATOR_SHARE, CPU_SHARE_AT_MOST, Budget
from noria.config.pool import PoolQuestion
from noria.config.sizes import flag_size_below, format_size, parse_size


@dataclass(frozen=True, slots=True)
class Shortage:
    """The budget does not hold `num_blocks` blocks beside the rest, for requests of up to `length` tokens."""

    question: PoolQuestion
    budget: Budget
    length: int
    num_blocks: int

    @property
    def needed_bytes(self) -> int:
        return self.question.demand.with_blocks(self.length, self.num_blocks)

    def explain(self) -> str:
        demand, budget = self.question.demand, self.budget
        pool_bytes = self.num_blocks * demand.block_bytes
        subject = "the model does not fit in memory"
        if demand.weights_bytes > budget.num_bytes:
            subject = "the model's weights do not fit in memory"
        return (
            f"{subject}: needed are {format_size(self.needed_bytes)} (weights "
            f"{format_size(demand.weights_bytes)}, workspace {format_size(demand.workspace(self.length))}, "
            f"KV cache {format_size(pool_bytes)} for {self.num_blocks * demand.block_size} tokens, the process "
            f"itself {format_size(demand.process_bytes)}); available are {format_size(budget.num_bytes)}: "
            f"{budget.reason}. Would work: {'; or '.join(self.remedies())}"
        )

    def remedies(self) -> list[str]:
        """Changes that make it fit, each on its own; the settings are written so that they can be copied."""
        stated = self.question.memory.num_gpu_blocks_override or self.question.memory.kv_cache_memory
        candidates = (
            self._larger_share(),
            self._smaller_pool() if stated else self._shorter_length(),
            self._smaller_steps(),
            self._smaller_dtype(),
            self._more_memory(),
        )
        return [remedy for remedy in candidates if remedy]

    def _larger_share(self) -> str:
        total = self.question.hardware.total_memory_bytes
        if self.needed_bytes > self.budget.ceiling_bytes:
            return ""
        for hundredths in range(1, 101):
            if int(total * (hundredths / 100)) >= self.needed_bytes:
                return f"--gpu-memory-utilization {hundredths / 100:g}"
        return ""

    def _shorter_length(self) -> str:
        if not self.question.goal.is_fixed:
            return ""
        fits = self.question.demand.longest_within(self.budget.num_bytes, self.length)
        return f"--max-model-len {fits}" if fits else ""

    def _smaller_pool(self) -> str:
        demand = self.question.demand
        fits = demand.blocks_within(self.budget.num_bytes, self.length)
        fewest = demand.num_blocks(self.length) if self.question.goal.is_fixed else 1
        if self.question.memory.num_gpu_blocks_override is not None:
            return f"--num-gpu-blocks-override {fits}" if fits >= fewest else ""
        size = flag_size_below(max(fits, 0) * demand.block_bytes)
        return f"--kv-cache-memory {size}" if parse_size(size) >= fewest * demand.block_bytes else ""

    def _smaller_steps(self) -> str:
        leaner = self.question.leaner
        if leaner.with_blocks(self.length, self.num_blocks) > self.budget.num_bytes:
            return ""
        return self.question.lean_flags

    def _smaller_dtype(self) -> str:
        if self.question.dtype != "float32":
            return ""
        demand = self.question.demand
        saved = (demand.weights_bytes + self.num_blocks * demand.block_bytes) // 2
        if self.needed_bytes - saved > self.budget.num_bytes:
            return ""
        return "--dtype bfloat16 (takes about half for weights and KV cache)"

    def _more_memory(self) -> str:
        share = self.question.memory.gpu_memory_utilization or self._default_share_at_most()
        total = math.ceil(self.needed_bytes / share)
        hardware = self.question.hardware
        return (
            f"{format_size(total)} of memory for this process (now {format_size(hardware.total_memory_bytes)}, "
            f"of which {format_size(hardware.available_memory_bytes)} are free)"
        )

    def _default_share_at_most(self) -> float:
        return CPU_SHARE_AT_MOST if self.question.hardware.device == "cpu" else ACCELERATOR_SHARE
