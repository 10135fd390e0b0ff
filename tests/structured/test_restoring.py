"""Sequences that a process lost are told to the next one, and none keeps those of other grammars waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from noria.config.errors import EngineError, RequestError
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured.asking import Followed
from noria.structured.restoring import Restoring


class Prepared:
    """As much of structured.preparing as is asked here. asked: by name, to be answered by the test."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.asked: dict[str, Future[None]] = {}

    def is_slow(self, grammar: Grammar) -> bool:
        return grammar.text == "slow"

    def ask(self, grammar: Grammar, outputs: Mapping[str, Sequence[int]]) -> Future[None]:
        (name,) = outputs
        self.asked[name] = Future()
        return self.asked[name]

    def forget(self, names: Sequence[str]) -> None:
        self.forgotten += names


@pytest.fixture
def preparing() -> Prepared:
    return Prepared()


@pytest.fixture
def restoring(preparing: Any) -> Restoring:
    return Restoring(preparing)


def followed(name: str, text: str = "quick") -> Followed:
    made = Followed(name, Grammar("regex", text, "response_format"), SamplingParams())
    made.outputs += [1, 2, 3]
    return made


def test_what_takes_long_to_read_keeps_only_its_like_waiting(
    restoring: Restoring, preparing: Prepared
) -> None:
    sequences = {name: followed(name, name[:-1]) for name in ("slow1", "slow2", "quick1", "quick2")}
    assert restoring.begin(sequences.values()) == {}
    assert list(preparing.asked) == ["slow1", "quick1"]
    assert restoring.look(list(sequences)) == (set(sequences), {})
    preparing.asked["quick1"].set_result(None)
    preparing.asked["quick2"].set_result(None)
    assert restoring.look(list(sequences)) == ({"slow1", "slow2"}, {})
    assert sequences["quick2"].num_told == 3
    preparing.asked["slow1"].set_result(None)
    assert restoring.look(["slow1", "slow2"]) == ({"slow2"}, {})


def test_a_sequence_that_no_process_survives_fails_alone(restoring: Restoring, preparing: Prepared) -> None:
    restoring.begin(map(followed, ("first", "bad", "last")))
    preparing.asked["first"].set_result(None)
    preparing.asked["bad"].set_exception(RequestError("it could not be read", "response_format"))
    preparing.asked["last"].set_result(None)
    assert restoring.look(["first", "bad", "last"]) == (set(), {"bad": "it could not be read"})


def test_a_sequence_that_is_lost_again_and_again_is_given_up(
    restoring: Restoring, preparing: Prepared
) -> None:
    unlucky = followed("unlucky")
    for _ in range(3):
        assert restoring.begin([unlucky]) == {}
        preparing.asked["unlucky"].set_result(None)
        assert restoring.look(["unlucky"]) == (set(), {})
    assert restoring.begin([unlucky]) == {"unlucky": "what reads grammars ended again and again"}
    assert restoring.look(["unlucky"]) == (set(), {})


def test_who_is_given_up_while_its_request_is_not_planned_makes_room_for_the_next(
    restoring: Restoring, preparing: Prepared
) -> None:
    restoring.begin(map(followed, ("late", "next")))
    preparing.asked["late"].set_exception(EngineError("response_format could not be made ready"))
    preparing.asked["next"].set_result(None)
    assert restoring.look(["next"]) == (set(), {})
    assert restoring.look(["late"]) == (set(), {"late": "response_format could not be made ready"})


def test_what_was_restored_for_a_request_that_is_not_planned_wakes_nobody_twice(
    restoring: Restoring, preparing: Prepared
) -> None:
    restoring.begin(map(followed, ("preempted", "planned")))
    preparing.asked["preempted"].set_result(None)
    assert restoring.wait(0.0) is True
    assert restoring.look(["planned"]) == ({"planned"}, {})
    assert restoring.wait(0.0) is False
    preparing.asked["planned"].set_result(None)
    assert restoring.wait(0.0) is True
    assert restoring.look(["planned"]) == (set(), {})


def test_a_request_that_ends_meanwhile_is_forgotten_by_the_process_as_well(
    restoring: Restoring, preparing: Prepared
) -> None:
    restoring.begin(map(followed, ("gone", "waits", "stays")))
    restoring.forget(["gone", "waits", "nobody"])
    assert restoring.look(["gone", "waits", "stays"]) == ({"stays"}, {})
    preparing.asked["gone"].set_result(None)
    assert preparing.forgotten == ["gone"]
    assert list(preparing.asked) == ["gone", "stays"]  # nobody waits for the other one
