"""Small objects that decide one thing each. The planning loop asks them and names no feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from noria.config.engine import AdmissionPolicy, SchedulerConfig, SchedulingPolicy
from noria.core.fair_shares import FairShares
from noria.core.order import ByPriority, FirstCome, Order
from noria.core.prices import Prices, TokenPrices
from noria.core.queue import RequestQueue
from noria.core.request import Request
from noria.core.time_prices import TimePrices

MAX_CANDIDATES = 64  # how far behind the queue's head a step looks for requests to admit


class Admission(Protocol):
    # A request may stay out while a running one computes the beginning of its prompt.
    waits_for_prefix: bool

    def candidates(self, waiting: RequestQueue, running: RequestQueue, num_slots: int) -> list[Request]:
        """Waiting requests that may join now, in order; at most num_slots."""
        ...

    def refuse(self, request: Request) -> None:
        """A candidate did not fit the free blocks."""
        ...


class ContinuousAdmission:
    """A request joins at any step."""

    waits_for_prefix = True

    def candidates(self, waiting: RequestQueue, running: RequestQueue, num_slots: int) -> list[Request]:
        return waiting.first(min(num_slots, MAX_CANDIDATES))

    def refuse(self, request: Request) -> None:
        """It stays a candidate."""


class StaticAdmission:
    """A batch is chosen when nothing runs, and runs closed until its last member ends.

    What engines without continuous batching do; here so that anyone can measure the difference. Members whose
    prompts do not fit the first step join in the next ones; one that does not fit the free blocks is left for
    the next batch.
    """

    waits_for_prefix = False  # nobody joins late

    def __init__(self) -> None:
        self._members: set[str] = set()

    def candidates(self, waiting: RequestQueue, running: RequestQueue, num_slots: int) -> list[Request]:
        if not len(running):
            self._members = {request.id for request in waiting.first(num_slots)}
        return [request for request in waiting.first(len(waiting)) if request.id in self._members][:num_slots]

    def refuse(self, request: Request) -> None:
        self._members.discard(request.id)


class BudgetSplit(Protocol):
    def split(self, budget: int, needs: Sequence[int]) -> list[int]:
        """What each of several requests gets, oldest request first; sum <= budget. In units of core.prices."""
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


@dataclass(frozen=True, slots=True)
class Policies:
    admission: Admission
    split: BudgetSplit
    order: Order
    prices: Prices


def choose_policies(config: SchedulerConfig) -> Policies:
    admissions: dict[AdmissionPolicy, Admission] = {
        AdmissionPolicy.CONTINUOUS: ContinuousAdmission(),
        AdmissionPolicy.STATIC: StaticAdmission(),
    }
    orders: dict[SchedulingPolicy, Order] = {
        SchedulingPolicy.FAIR: FairShares(),
        SchedulingPolicy.FCFS: FirstCome(),
        SchedulingPolicy.PRIORITY: ByPriority(config.priority_aging_s),
    }
    chunked: dict[SchedulingPolicy, BudgetSplit] = {
        SchedulingPolicy.FAIR: ShortestShare(),
        SchedulingPolicy.FCFS: ShortestShare(),
        SchedulingPolicy.PRIORITY: InOrder(),
    }
    return Policies(
        admission=admissions[config.admission_policy],
        split=chunked[config.scheduling_policy] if config.enable_chunked_prefill else WholePrompts(),
        order=orders[config.scheduling_policy],
        prices=choose_prices(config),
    )


def choose_prices(config: SchedulerConfig) -> Prices:
    # Prompts that are never cut are counted out in tokens: one may take longer than a step is meant to.
    if config.step_cost is None or not config.enable_chunked_prefill:
        return TokenPrices(config.max_num_batched_tokens)
    return TimePrices(config)
