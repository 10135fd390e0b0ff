"""Grammar processes that are none, for tests of what asks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, ClassVar

import pytest

from noria.config.tokenizer import TokenizerSpec
from noria.structured import awaited, wire
from noria.structured.preparing import Preparing

SETUP = wire.Setup(TokenizerSpec(tokenizer_json="{}"), 8, (0,))


class Approving:
    """Finds every grammar good."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[wire.Vet] = SimpleQueue()

    def send(self, vet: wire.Vet) -> None:
        self._asked.put(vet)

    def receive(self) -> wire.Vetted:
        vet = self._asked.get()
        return wire.Vetted(vet.serial, vet.text)


class Dying:
    """A process that ends with whatever it is asked, which it tells of before."""

    made: ClassVar[list[Dying]] = []

    def __init__(self) -> None:
        self.made.append(self)
        self.asked: SimpleQueue[Any] = SimpleQueue()
        self.control = self
        self.vetting = Approving()

    def send(self, message: Any) -> None:
        self.asked.put(message)

    def receive(self) -> wire.Prepared:
        while not isinstance(self.asked.get(), wire.Prepare):
            pass
        raise EOFError

    def end(self) -> None:
        pass


class Reading(Dying):
    def receive(self) -> wire.Prepared:
        while not isinstance(message := self.asked.get(), wire.Prepare):
            pass
        return wire.Prepared(message.serial)


def sequence_of(kinds: Iterable[Callable[[], Dying]], monkeypatch: pytest.MonkeyPatch) -> Preparing:
    """Whose processes are of these kinds, one after the other, and wait for ever unless a test limits it."""
    left = iter(kinds)
    monkeypatch.setattr(Dying, "made", [])
    monkeypatch.setattr("noria.structured.preparing.GrammarProcess", lambda: next(left)())
    for limit in "QUICK_LIMIT_S", "VERDICT_LIMIT_S":
        monkeypatch.setattr(awaited, limit, math.inf)
    return Preparing(lambda: SETUP)
