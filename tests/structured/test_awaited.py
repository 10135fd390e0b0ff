"""A process that hangs is noticed by what it should have answered, and nobody else's request fails for it."""

from __future__ import annotations

import math
import threading
from typing import Any, ClassVar

import pytest

from noria.config.errors import EngineError
from noria.sampling.grammar import Grammar
from noria.structured import awaited, wire
from support_grammar_processes import Dying, Reading, sequence_of
from support_processes import LIMIT_S


class Hanging(Dying):
    """Never answers. limit: that on what is waited for, which is over until it is ended."""

    limit: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._has_ended = threading.Event()

    def receive(self) -> wire.Prepared:
        self._has_ended.wait()
        raise EOFError

    def end(self) -> None:
        setattr(awaited, self.limit, math.inf)
        self._has_ended.set()


class Asked(Hanging):
    """Hangs once it has been asked twice."""

    limit = "QUICK_LIMIT_S"

    def send(self, message: Any) -> None:
        super().send(message)
        if self.asked.qsize() == 3:  # with the first message
            setattr(awaited, self.limit, 0.0)


def test_what_is_not_made_ready_in_time_fails_alone_and_ends_the_process_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preparing = sequence_of([Asked, Reading], monkeypatch)
    late, other = (preparing.ask(Grammar("regex", text, "text.format"), {text: ()}) for text in "ab")
    with pytest.raises(EngineError, match=r"text\.format could not be made ready: .* did not answer in time"):
        late.result(LIMIT_S)
    assert other.result(LIMIT_S) is None
    assert preparing.process is Dying.made[1]


def test_who_is_innocent_of_one_process_that_hung_survives_the_end_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preparing = sequence_of([Asked, Dying, Reading], monkeypatch)
    late, other = (preparing.ask(Grammar("regex", text), {text: ()}) for text in "ab")
    with pytest.raises(EngineError, match="did not answer in time"):
        late.result(LIMIT_S)
    assert other.result(LIMIT_S) is None


class Undecided(Hanging):
    """Finds no verdict."""

    limit = "VERDICT_LIMIT_S"

    def __init__(self) -> None:
        super().__init__()
        self.vetting = self
        setattr(awaited, self.limit, 0.0)


def test_a_verdict_that_does_not_come_ends_the_process_and_is_asked_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preparing = sequence_of([Undecided, Reading], monkeypatch)
    assert preparing.ask(Grammar("regex", "a"), {"a": ()}).result(LIMIT_S) is None
    assert preparing.process is Dying.made[1]


def test_a_verdict_that_does_not_come_from_the_next_one_either_is_an_engines_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preparing = sequence_of([Undecided, Undecided], monkeypatch)
    asked = preparing.ask(Grammar("regex", "a", "text.format"), {"a": ()})
    with pytest.raises(EngineError, match=r"text\.format could not be read: .* did not answer in time"):
        asked.result(LIMIT_S)


class Clock:
    """As structured.awaited has it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def test_what_is_to_be_made_ready_has_its_time_from_when_it_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(awaited, "time", clock := Clock())
    waited = awaited.Awaited()
    assert waited.due_s == math.inf
    for serial in range(5):
        waited.add(serial, is_slow=False)
    waited.add(5, is_slow=True)
    waited.add(6, is_slow=True)
    clock.now_s = 40.0
    waited.drop(1)  # the fourth begins
    waited.drop(5)
    assert (waited.due_s, waited.late(59.0), waited.late(60.0)) == (60.0, None, 0)
    for serial in 0, 2:
        waited.drop(serial)
    assert (waited.due_s, waited.late(100.0)) == (100.0, 3)
    for serial in 3, 4:
        waited.drop(serial)
    assert (waited.due_s, waited.late(160.0)) == (160.0, 6)


def test_verdicts_have_their_time_from_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "time", clock := Clock())
    waited = awaited.Awaited()
    waited.await_verdict()
    clock.now_s = 100.0
    waited.await_verdict()
    assert waited.due_s == 150.0
    waited.hear_verdict(1)
    assert (waited.due_s, waited.late(300.0)) == (250.0, None)  # nobody knows which it hangs on
    waited.hear_verdict(0)
    assert waited.due_s == math.inf
