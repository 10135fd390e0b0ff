from __future__ import annotations

from noria.cli.restarts import Restarts


def test_the_first_end_after_a_calm_time_is_followed_at_once() -> None:
    restarts = Restarts()
    assert restarts.next_delay_s(0, was_up=True) == 0
    assert restarts.next_delay_s(100, was_up=True) == 0


def test_ends_in_a_row_are_followed_ever_later_up_to_a_limit() -> None:
    restarts = Restarts()
    delays = [restarts.next_delay_s(float(second), was_up=True) for second in range(12)]
    assert delays[:4] == [0, 0.2, 0.4, 0.8]
    assert delays[-1] == 10


def test_the_limit_holds_however_often_it_ends() -> None:
    restarts = Restarts()
    delays = [restarts.next_delay_s(11.0 * number, was_up=True) for number in range(5000)]
    assert set(delays[10:]) == {10}


def test_what_fails_to_start_five_times_in_a_row_is_given_up() -> None:
    restarts = Restarts()
    assert [restarts.next_delay_s(float(s), was_up=False) is None for s in range(5)] == [False] * 4 + [True]


def test_a_start_that_worked_clears_the_count_of_those_that_did_not() -> None:
    restarts = Restarts()
    for second in range(4):
        assert restarts.next_delay_s(float(second), was_up=False) is not None
    assert restarts.next_delay_s(5.0, was_up=True) is not None
    for second in range(6, 10):
        assert restarts.next_delay_s(float(second), was_up=False) is not None
