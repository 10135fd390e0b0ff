"""Small objects that decide one thing each. The planning loop asks them and names no feature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from noria.config.engine import AdmissionPolicy, SchedulerConfig, SchedulingPolicy
from noria.core.queue import OrderKey
from noria.core.request import Request


class Admission(Protocol):
    waits_for_prefix: bool  # a request may stay out while a running one computes the beginning of its prompt

    def is_open(self, running: Iterable[Request]) -> bool:
        """Whether a waiting request may join these."""
        ...


class ContinuousAdmission:
    """A request joins at any step."""

    waits_for_prefix = True

    def is_open(self, running: Iterable[Request]) -> bool:
        return True


class StaticAdmission:
    """A batch gathers until its first token comes out, then runs closed until its last member ends.

    What engines without continuous batching do; here so that anyone can measure the difference.
    """

    waits_for_prefix = False  # the batch would close without it

    def is_open(self, running: Iterable[Request]) -> bool:
        return all(request.num_output == 0 for request in running)


class BudgetSplit(Protocol):
    def split(self, budget: int, needs: Sequence[int]) -> list[int]:
        """Tokens for each of several requests that need `needs` tokens, oldest request first; sum <= budget."""
        ...


class ShortestShare:
    """Prompts share what is left of a step, in pieces of any size.

    The oldest gets at least half, so it takes at most twice as long as alone; the rest goes to the shortest
    first, so a short prompt never waits for a long one. Nothing is left over while somebody needs it.
    """

    def split(self, budget: int, needs: Sequence[int]) -> list[int]:
        shares = [0] * len(needs)
        if not needs:
            return shares
        shares[0] = min(needs[0], -(-budget // 2))
        left = budget - shares[0]
        for index in sorted(range(1, len(needs)), key=needs.__getitem__):
            shares[index] = min(needs[index], left)
            left -= shares[index]
        shares[0] += min(needs[0] - shares[0], left)
        return shares


class InOrder:
    """Prompts are computed in order, in pieces of any size: what priorities ask for."""

    def split(self, budget: int, needs: Sequence[int]) -> list[int]:
        shares = []
        for need in needs:
            shares.append(min(need, budget))
            budget -= shares[-1]
        return shares


class WholePrompts:
    """Prompts are computed in one piece, strictly in order: one that does not fit waits for the next step, and
    nothing passes it, or it could wait for ever.
    """

    def split(self, budget: int, needs: Sequence[int]) -> list[int]:
        shares = [0] * len(needs)
        for index, need in enumerate(needs):
            if need > budget:
                break
            shares[index] = need
            budget -= need
        return shares


def first_come_key(request: Request) -> tuple[float, int]:
    """First come, first served."""
    return (0.0, request.sequence)


@dataclass(frozen=True, slots=True)
class PriorityKey:
    """Priority with aging: each level is worth `aging_s` seconds of waiting.

    Effective priority falls linearly while a request waits, so the order of any two never changes and a key
    computed once is right for ever: priority - (now - arrival) / aging  orders as  arrival + priority * aging.
    """

    aging_s: float

    def __call__(self, request: Request) -> tuple[float, int]:
        return (request.arrival_s + request.priority * self.aging_s, request.sequence)


@dataclass(frozen=True, slots=True)
class Policies:
    admission: Admission
    split: BudgetSplit
    order: OrderKey


def choose_policies(config: SchedulerConfig) -> Policies:
    admissions: dict[AdmissionPolicy, Admission] = {
        AdmissionPolicy.CONTINUOUS: ContinuousAdmission(),
        AdmissionPolicy.STATIC: StaticAdmission(),
    }
    orders: dict[SchedulingPolicy, OrderKey] = {
        SchedulingPolicy.FCFS: first_come_key,
        SchedulingPolicy.PRIORITY: PriorityKey(config.priority_aging_s),
    }
    chunked: dict[SchedulingPolicy, BudgetSplit] = {
        SchedulingPolicy.FCFS: ShortestShare(),
        SchedulingPolicy.PRIORITY: InOrder(),
    }
    return Policies(
        admission=admissions[config.admission_policy],
        split=chunked[config.scheduling_policy] if config.enable_chunked_prefill else WholePrompts(),
        order=orders[config.scheduling_policy],
    )
