"""What the engine asks ahead of a step is what it would have asked in it, and no step waits long for an answer."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest
from llguidance import LLTokenizer

from noria.core.plan import Sampled, StepPlan, StepResult, Work
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured import wire
from noria.structured.asking import Answer, Asking, Followed
from noria.structured.grammars import GrammarConstraints
from noria.structured.mask_memory import MaskMemory, open_memory
from noria.structured.matchers import Matchers
from noria.structured.reading import source_of
from support_grammar_processes import SETUP

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


class Hesitating(Answering):
    """Answers each question when it is looked for the second time."""

    def has_news(self, timeout_s: float) -> bool:
        self.is_busy = not self.is_busy
        return super().has_news(timeout_s)


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
    asking: Asking, preparing: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noria.structured.asking._PATIENCE_S", 60.0)  # nothing here does wait
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


def test_groups_that_are_late_by_turns_use_the_same_rows_again_and_again(
    asking: Asking, preparing: Prepared
) -> None:
    a, c = map(followed, "ac")
    preparing.process = process = Hesitating()
    assert asking.answer([a]) == Answer(late={"a"})
    for _ in range(3):
        assert asking.answer([a, c]) == Answer(rows={"a": 0}, late={"c"})
        assert allowed(asking, 0) == "ab"
        assert asking.answer([a, c]) == Answer(rows={"c": 1}, late={"a"})
        assert allowed(asking, 1) == "cd"
    assert [fill.first_row for fill in process.asked] == [0, 1] * 3


def test_a_larger_group_goes_behind_the_rows_that_the_step_has(asking: Asking, preparing: Prepared) -> None:
    a, c, e = map(followed, "ace")
    preparing.process = process = Hesitating()
    assert asking.answer([a]) == Answer(late={"a"})
    assert asking.answer([a, c]) == Answer(rows={"a": 0}, late={"c"})
    assert asking.answer([a, c, e]) == Answer(rows={"c": 1}, late={"a", "e"})
    assert asking.answer([a, e]) == Answer(rows={"a": 2, "e": 3})
    assert [fill.first_row for fill in process.asked] == [0, 1, 2]
    assert [allowed(asking, row) for row in (2, 3)] == ["ab", "ef"]


@pytest.mark.parametrize(("planned", "num_pauses"), [("a", 1), ("ac", 1), ("ap", 0), ("acp", 0)])
def test_a_step_pauses_if_all_that_are_in_it_are_late_whoever_else_was_asked_about(
    monkeypatch: pytest.MonkeyPatch, planned: str, num_pauses: int
) -> None:
    constraints = GrammarConstraints(lambda: SETUP, 257, [256])
    preparing: Any = constraints._preparing
    preparing._process = process = Answering()
    constraints._sequences.update((name, followed(name)) for name in "ac")
    process.is_busy = True
    constraints.accept(StepResult(0, (Sampled("a", (ord("b"),)), Sampled("c", (ord("d"),)))))
    constraints.forget([name for name in "ac" if name not in planned])
    pauses: list[float] = []
    monkeypatch.setattr(constraints._asking, "wait", lambda limit_s: pauses.append(limit_s) or True)
    work = tuple(Work(name, 1, 1, (), samples=True) for name in planned)  # p follows no grammar
    masks = constraints.masks_for(StepPlan(1, (), work, (), ()))
    assert masks is not None
    assert masks.unready == set(planned) - {"p"}
    assert len(pauses) == num_pauses
