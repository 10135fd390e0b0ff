"""What a token of a step costs, and how much a step may cost: the unit in which a step is shared out."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PromptShare(NamedTuple):
    """What prompts may cost in a step; whether requests that wait may join it."""

    price: int
    takes_newcomers: bool = True


class Prices(Protocol):
    """Whole numbers of any one unit. step: what a step may cost, as far as is known."""

    @property
    def step(self) -> int: ...

    def of(self, num_new: int, num_computed: int) -> int:
        """The price of num_new tokens of a request that follow num_computed others."""
        ...

    def tokens(self, price: int, num_computed: int) -> int:
        """The most tokens at that price."""
        ...

    def for_prompts(self, spent: int, num_decodes: int) -> PromptShare:
        """What is left for prompts in a step whose decodes cost `spent`."""
        ...

    def planned(self, spent: int, num_decodes: int, now_s: float) -> None:
        """A step that is to cost `spent` begins."""
        ...

    def done(self, now_s: float) -> None:
        """Its results are there."""
        ...


class TokenPrices:
    """Every token costs one."""

    def __init__(self, num_tokens: int) -> None:
        self.step = num_tokens

    def of(self, num_new: int, num_computed: int) -> int:
        return num_new

    def tokens(self, price: int, num_computed: int) -> int:
        return price

    def for_prompts(self, spent: int, num_decodes: int) -> PromptShare:
        return PromptShare(self.step - spent)

    def planned(self, spent: int, num_decodes: int, now_s: float) -> None:
        """Tokens cost what they cost."""

    def done(self, now_s: float) -> None:
        """Tokens cost what they cost."""
