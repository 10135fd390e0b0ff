"""A model that does not fit in memory: what it needs, what there is, and what would help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from noria.config.budget import Budget, Demand, share_at_most
from noria.config.faults import Fault, Problem, Remedy
from noria.config.hardware import Hardware
from noria.config.sizes import format_size


@dataclass(frozen=True, slots=True)
class Shortage:
    """The budget does not hold `num_blocks` blocks beside the rest, for requests of up to `length` tokens."""

    demand: Demand
    hardware: Hardware
    budget: Budget
    length: int
    num_blocks: int

    def problem(self, smaller: tuple[Remedy, ...]) -> Problem:
        """smaller: what the caller knows to be changed so that less is needed."""
        remedies = (*self._larger_share(), *smaller)
        return Problem(Fault.MEMORY, self._text(), remedies, (self._more_memory(),))

    @property
    def _needed_bytes(self) -> int:
        return self.demand.with_blocks(self.length, self.num_blocks)

    def _text(self) -> str:
        demand, budget = self.demand, self.budget
        subject = "model's weights do" if demand.weights_bytes > budget.num_bytes else "model does"
        pool = format_size(self.num_blocks * demand.block_bytes)
        return (
            f"the {subject} not fit in memory: needed are {format_size(self._needed_bytes)} (weights "
            f"{format_size(demand.weights_bytes)}, workspace {format_size(demand.workspace(self.length))}, "
            f"KV cache {pool} for {self.num_blocks * demand.block_size} tokens, the process itself "
            f"{format_size(demand.process_bytes)}); available are {format_size(budget.num_bytes)}: "
            f"{budget.reason}"
        )

    def _larger_share(self) -> tuple[Remedy, ...]:
        share = math.ceil(100 * self._needed_bytes / self.hardware.total_memory_bytes) / 100
        return (Remedy({"gpu_memory_utilization": f"{share:g}"}),) if share <= 1 else ()

    def _more_memory(self) -> str:
        share = self.budget.asked_share or share_at_most(self.hardware)
        total = format_size(math.ceil(self._needed_bytes / share))
        hardware = self.hardware
        return (
            f"about {total} of memory for this process (now {format_size(hardware.total_memory_bytes)}, of which "
            f"{format_size(hardware.available_memory_bytes)} are free)"
        )
