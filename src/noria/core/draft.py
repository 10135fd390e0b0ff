"""A step plan under construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noria.core.plan import BlockMove, NewRequest, StepPlan, Work
from noria.core.prices import Prices
from noria.core.request import Request


@dataclass(slots=True)
class DraftWork:
    request: Request
    num_new: int
    price: int
    new_blocks: tuple[int, ...]

    def freeze(self) -> Work:
        request, num_new = self.request, self.num_new
        num_computed, num_known = request.num_computed, len(request.token_ids)
        samples = num_computed + num_new == num_known and num_known < request.max_known
        return Work(request.id, num_computed, num_new, self.new_blocks, samples)


class Draft:
    """Collects work until tokens or price are spent. Work can be added to a request twice, and dropped again.

    tokens_left: tokens that the step still takes. price_left: what prompts may still cost. spent: what all costs that
    is in.
    num_decodes, takes_newcomers: set once all decodes are in: how many, and whether requests that wait may join them.
    """

    def __init__(self, max_tokens: int, prices: Prices) -> None:
        self.tokens_left = max_tokens
        self.price_left = prices.step
        self.spent = 0
        self.num_decodes = 0
        self.takes_newcomers = True
        self._prices = prices
        self._work: dict[str, DraftWork] = {}
        self._arrivals: list[NewRequest] = []
        self._moves: list[BlockMove] = []

    @property
    def is_empty(self) -> bool:
        return not self._work

    @property
    def is_spent(self) -> bool:
        return self.tokens_left <= 0 or self.price_left <= 0

    def reserve_for_prompts(self) -> None:
        """Called when all decodes are in: prompts get their part, whatever was spent."""
        self.num_decodes = len(self._work)
        self.price_left, self.takes_newcomers = self._prices.for_prompts(self.spent, self.num_decodes)

    def need(self, request: Request) -> int:
        """The price of all that the request lacks."""
        return self._prices.of(request.num_pending, request.num_computed)

    def affordable(self, request: Request, price: int) -> int:
        """How many more of the request's tokens that price buys; one at least if it has none in the step yet."""
        planned = self.num_new(request)
        bought = self._prices.tokens(price, request.num_computed + planned)
        return min(bought if planned else max(1, bought), self.tokens_left, request.num_pending - planned)

    def num_new(self, request: Request) -> int:
        """Tokens of the request that are in the draft already."""
        work = self._work.get(request.id)
        return work.num_new if work else 0

    def add(self, request: Request, num_new: int, new_blocks: Sequence[int]) -> None:
        assert 0 < num_new <= self.tokens_left, f"{num_new} tokens where {self.tokens_left} are left"
        work = self._work.get(request.id)
        if work is None:
            price = self._prices.of(num_new, request.num_computed)
            self._work[request.id] = DraftWork(request, num_new, price, tuple(new_blocks))
        else:
            price = self._prices.of(num_new, request.num_computed + work.num_new)
            work.num_new += num_new
            work.price += price
            work.new_blocks = (*work.new_blocks, *new_blocks)
        self.tokens_left -= num_new
        self.price_left -= price
        self.spent += price

    def introduce(self, request: Request, moves: Sequence[BlockMove]) -> None:
        """Tell the runner of a request that it does not know."""
        self._arrivals.append(
            NewRequest(request.id, tuple(request.token_ids), request.num_prompt, request.params, request.seed)
        )
        self._moves.extend(moves)

    def drop(self, request: Request) -> None:
        """Take back a request's work, if it has any."""
        work = self._work.pop(request.id, None)
        if work is not None:
            self.tokens_left += work.num_new
            self.price_left += work.price
            self.spent -= work.price

    def freeze(self, step: int, departures: Sequence[str], now_s: float) -> StepPlan:
        self._prices.planned(self.spent, self.num_decodes, now_s)
        return StepPlan(
            step=step,
            arrivals=tuple(self._arrivals),
            work=tuple([work.freeze() for work in self._work.values()]),
            moves=tuple(self._moves),
            departures=tuple(departures),
        )
