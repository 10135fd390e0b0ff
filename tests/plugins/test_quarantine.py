"""Decoding rules that are late again and again are refused for a while, by tenant."""

from __future__ import annotations

from noria.rules.quarantine import MAX_LATE, REST_S, Quarantine

RULE = ("somebody", "pack:Rule")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def late(quarantine: Quarantine, count: int) -> None:
    for _ in range(count):
        quarantine.was_late(*RULE)


def test_a_rule_that_is_late_in_a_row_rests_and_is_tried_again() -> None:
    clock = Clock()
    quarantine = Quarantine(clock)
    late(quarantine, MAX_LATE - 1)
    assert quarantine.rest_s(*RULE) == 0
    late(quarantine, 1)
    assert quarantine.rest_s(*RULE) == REST_S
    clock.now_s += REST_S
    assert quarantine.rest_s(*RULE) == 0
    late(quarantine, 1)  # once is enough now
    assert quarantine.rest_s(*RULE) == REST_S


def test_an_answer_between_makes_it_good_again_but_not_while_it_rests() -> None:
    clock = Clock()
    quarantine = Quarantine(clock)
    late(quarantine, MAX_LATE - 1)
    quarantine.answered(*RULE)
    late(quarantine, MAX_LATE - 1)
    assert quarantine.rest_s(*RULE) == 0
    late(quarantine, 1)
    quarantine.answered(*RULE)
    assert quarantine.rest_s(*RULE) == REST_S
    clock.now_s += REST_S
    quarantine.answered(*RULE)
    late(quarantine, 1)
    assert quarantine.rest_s(*RULE) == 0


def test_other_tenants_and_other_rules_go_on() -> None:
    quarantine = Quarantine(Clock())
    late(quarantine, MAX_LATE)
    assert quarantine.rest_s("another", RULE[1]) == 0
    assert quarantine.rest_s(RULE[0], "pack:Other") == 0
    assert quarantine.rest_s(*RULE) > 0


def test_what_is_remembered_has_a_bound() -> None:
    quarantine = Quarantine(Clock())
    for number in range(5000):
        quarantine.was_late("somebody", f"pack:Rule{number}")
    assert len(quarantine._records) <= 4096


def test_beyond_the_bound_what_rests_is_remembered_and_so_is_a_row_that_has_begun() -> None:
    quarantine = Quarantine(Clock())
    late(quarantine, MAX_LATE)
    for number in range(4095):
        quarantine.was_late("somebody", f"pack:Rule{number}")
    quarantine.was_late("somebody", "pack:Rule0")  # it is there: nobody goes for it
    quarantine.was_late("somebody", "pack:New")
    quarantine.was_late("somebody", "pack:Rule1")
    quarantine.was_late("somebody", "pack:Rule1")
    assert quarantine.rest_s(*RULE) == REST_S
    assert quarantine.rest_s("somebody", "pack:Rule1") == REST_S


def test_where_all_that_are_remembered_rest_none_of_them_goes() -> None:
    quarantine = Quarantine(Clock())
    for number in range(4096):
        for _ in range(MAX_LATE):
            quarantine.was_late("somebody", f"pack:Rule{number}")
    late(quarantine, MAX_LATE)
    assert quarantine.rest_s(*RULE) == 0
    assert all(quarantine.rest_s("somebody", f"pack:Rule{number}") == REST_S for number in range(4096))
