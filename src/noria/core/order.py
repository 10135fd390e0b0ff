"""Who goes first. An order gives each request its place once, when it is accepted; no queue is ever sorted again."""

from __future__ import annotations

from typing import Protocol

from noria.core.request import Place, Request


class Order(Protocol):
    """Gives places: the lower one goes first, and no two requests share one."""

    def place(self, request: Request, sequence: int) -> Place:
        """The place of a request that is being accepted. sequence: grows with each of them."""
        ...

    def began(self, request: Request) -> None:
        """It has joined the running requests, perhaps again after a preemption."""
        ...

    def ended(self, request: Request) -> None:
        """It is over, in whatever state it was; once for each place that was given."""
        ...


class FirstCome:
    """First come, first served."""

    def place(self, request: Request, sequence: int) -> Place:
        return (0.0, sequence)

    def began(self, request: Request) -> None:
        """Nothing follows from it."""

    def ended(self, request: Request) -> None:
        """Nothing follows from it."""


class ByPriority(FirstCome):
    """Priority with aging: each level is worth `aging_s` seconds of waiting.

    Effective priority falls linearly while a request waits, so the order of any two never changes and a place
    given once is right for ever: priority - (now - arrival) / aging  orders as  arrival + priority * aging.
    """

    def __init__(self, aging_s: float) -> None:
        self._aging_s = aging_s

    def place(self, request: Request, sequence: int) -> Place:
        return (request.life.arrival_s + request.claim.priority * self._aging_s, sequence)
