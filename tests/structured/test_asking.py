"""What the engine asks ahead of a step is what it would have asked in it, and no step waits long for an answer."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest
from llguidance import LLTokenizer

from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured import wire
from noria.structured.asking import Answer, Asking, Followed
from noria.structured.mask_memory import MaskMemory, open_memory
from noria.structured.matchers import Matchers
from noria.structured.reading import source_of

GRAMMARS = {"a": "[ab]x*", "c": "[cd]y*", "e": "[ef]z*"}
NUM_WORDS = 9  # of 257 tokens: every byte, and the end


class Answering:
    """A grammar process in this one: answers when it is waited for, unless it is busy. waits_s: how long it was."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.memory = open_memory()
        self.steps: Any = self
        self.has_answered = True
        self.asked: list[wire.Fill] = []
        self.is_busy = False
        self.waits_s: list[float] = []
        self._ours, self._theirs = wire.Channel(ours, wire.Filled), wire.Channel(theirs, wire.Fill)
        self._matchers = Matchers(LLTokenizer("byte"))
        self._view = MaskMemory(self.memory, self._matchers.row_bytes)
        for name, text in GRAMMARS.items():
            self._matchers.add(source_of("regex", text), {name: ()})

    def send(self, fill: wire.Fill) -> None:
        self._ours.send(fill)

    def has_news(self, timeout_s: float) -> bool:
        self.waits_s.append(timeout_s)
        if self.is_busy:
            return False
        self.asked.append(self._theirs.receive())
        self._theirs.send(self._matchers.fill(self.asked[-1], self._view))
        return True

    def receive(self) -> Any:
        return self._ours.receive()


class Prepared:
    """As much of structured.preparing as is asked here."""

    def __init__(self) -> None:
        self.process: Any = Answering()
        self.ended: list[Any] = []

    def end(self, process: Any) -> None:
        self.ended.append(process)
        self.process = None


def followed(name: str) -> Followed:
    return Followed(name, Grammar("regex", GRAMMARS[name]), SamplingParams())


def allowed(asking: Asking, row: int) -> str:
    bits = asking.bits(row + 1)[row].view(np.uint8)
    return "".join(map(chr, np.flatnonzero(np.unpackbits(bits, bitorder="little")[:256])))


@pytest.fixture
def preparing() -> Prepared:
    return Prepared()


@pytest.fixture
def asking(preparing: Any) -> Asking:
    return Asking(preparing, NUM_WORDS)


def test_who_joins_a_step_is_asked_about_behind_those_that_were_asked_about_ahead(
    asking: Asking, preparing: Prepared
) -> None:
    a, c, e = map(followed, "ace")
    assert asking.answer([a, c]).rows == {"a": 0, "c": 1}
    for one, token in (a, "b"), (c, "d"):
        one.outputs.append(ord(token))
    asking.ask_ahead([a, c])
    answer = asking.answer([e, c])
    assert answer.rows == {"a": 0, "c": 1, "e": 2}
    assert [allowed(asking, row) for row in range(3)] == ["x", "y", "ef"]
    assert [list(fill.news) for fill in preparing.process.asked] == [["a", "c"], ["a", "c"], ["e"]]
    assert (a.num_told, c.num_told, e.num_told) == (1, 1, 0)


def test_what_was_asked_ahead_of_no_step_is_told_once(asking: Asking, preparing: Prepared) -> None:
    a = followed("a")
    for token in "bxx":
        a.outputs.append(ord(token))
        asking.ask_ahead([a])
    assert asking.answer([a]).rows == {"a": 0}
    assert [fill.news["a"] for fill in preparing.process.asked] == [(98,), (120,), (120,)]
    assert allowed(asking, 0) == "x"


def test_who_is_late_keeps_one_step_waiting_and_sits_out_the_steps_until_there_is_an_answer(
    asking: Asking, preparing: Prepared
) -> None:
    a, c, e = map(followed, "ace")
    process = preparing.process
    process.is_busy = True
    asking.ask_ahead([a, c])
    assert asking.answer([a, c]) == Answer(late={"a", "c"})
    assert asking.answer([e, c]) == Answer(late={"a", "c", "e"})
    first_s, second_s = process.waits_s
    assert first_s > second_s == 0.0
    process.is_busy = False
    assert asking.answer([e, c]) == Answer(rows={"a": 0, "c": 1, "e": 2})
    assert [list(fill.news) for fill in process.asked] == [["a", "c"], ["e"]]
    assert [allowed(asking, row) for row in range(3)] == ["ab", "cd", "ef"]


def test_nothing_is_asked_ahead_while_an_answer_is_late(asking: Asking, preparing: Prepared) -> None:
    a, c = map(followed, "ac")
    process = preparing.process
    process.is_busy = True
    assert asking.answer([c]) == Answer(late={"c"})
    a.outputs.append(ord("b"))
    asking.ask_ahead([a])
    process.is_busy = False
    assert asking.answer([a, c]) == Answer(rows={"c": 0, "a": 1})
    assert [allowed(asking, row) for row in range(2)] == ["cd", "x"]


def test_whose_mask_is_late_is_asked_about_again_and_told_its_tokens_once(
    asking: Asking, preparing: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = followed("a")
    a.outputs.append(ord("b"))
    with monkeypatch.context() as patch:
        patch.setattr(preparing.process, "receive", lambda: wire.Filled({}, (), ("a",)))
        assert asking.answer([a]) == Answer(late={"a"})
    preparing.process.receive()
    assert asking.answer([a]) == Answer(rows={"a": 0})
    assert [fill.news["a"] for fill in preparing.process.asked] == [(98,), ()]
    assert allowed(asking, 0) == "x"


def test_nothing_is_known_of_those_that_a_process_was_asked_about_before_it_was_replaced(
    asking: Asking, preparing: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = followed("a")
    lost = preparing.process
    asking.ask_ahead([a])
    lost.is_busy = True
    with monkeypatch.context() as patch:
        patch.setattr("noria.structured.asking._FILL_LIMIT_S", -1.0)
        assert asking.answer([a]) is None
    assert preparing.ended == [lost]
    assert asking.answer([a]) is None  # there is no other yet
    preparing.process = Answering()
    preparing.process.has_answered = False
    assert asking.answer([a]) is None  # it starts, and is not waited for
    preparing.process.has_answered = True
    assert asking.answer([a]).rows == {"a": 0}
    assert allowed(asking, 0) == "ab"
