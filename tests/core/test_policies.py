from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noria.core.order import ByPriority
from noria.core.policies import InOrder, ShortestShare, WholePrompts
from noria.core.prefix import HashChain, Namespace
from noria.core.request import Claim, Request
from noria.sampling.params import SamplingParams

budgets = st.integers(0, 300)
needs = st.lists(st.integers(1, 200), max_size=8)


@given(budgets, needs)
def test_a_shortest_share_spends_the_budget_while_anyone_needs_it(budget: int, wanted: list[int]) -> None:
    shares = ShortestShare().split(budget, wanted)
    assert sum(shares) == min(budget, sum(wanted))
    assert all(0 <= share <= need for share, need in zip(shares, wanted, strict=True))


@given(budgets, needs.filter(bool))
def test_the_oldest_gets_half_of_a_shortest_share(budget: int, wanted: list[int]) -> None:
    assert ShortestShare().split(budget, wanted)[0] >= min(wanted[0], -(-budget // 2))


def test_a_short_prompt_gets_its_tokens_beside_several_long_ones() -> None:
    assert ShortestShare().split(256, [6000, 5000, 4000, 20]) == [128, 0, 108, 20]


def test_a_lone_prompt_gets_the_whole_budget() -> None:
    assert ShortestShare().split(256, [6000]) == [256]


def test_priorities_are_served_strictly_in_order() -> None:
    assert InOrder().split(100, [60, 60, 5]) == [60, 40, 0]


def test_whole_prompts_are_never_cut_and_never_passed() -> None:
    assert WholePrompts().split(100, [60, 60, 5]) == [60, 0, 0]
    assert WholePrompts().split(100, [40, 60, 5]) == [40, 60, 0]


def _request(priority: int, arrival_s: float) -> Request:
    chain, claim = HashChain(Namespace("m"), 4), Claim(priority=priority)
    request = Request("r", [1], SamplingParams(), 0, chain, claim)
    request.life.arrival_s = arrival_s
    return request


def test_a_lower_priority_number_goes_first_until_the_other_has_waited_a_level_longer() -> None:
    place = ByPriority(aging_s=30.0).place
    old_low = place(_request(1, 0.0), 0)
    assert place(_request(0, 29.0), 1) < old_low
    assert place(_request(0, 31.0), 2) > old_low


def test_equal_priorities_are_first_come_first_served() -> None:
    place = ByPriority(aging_s=30.0).place
    assert place(_request(0, 5.0), 3) < place(_request(0, 5.0), 4)
