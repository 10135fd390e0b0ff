from __future__ import annotations

from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import SchedulingPolicy
from noria.config.tenant import ANYBODY, Tenant
from noria.core.fair_shares import UNIT, FairShares
from noria.core.prefix import HashChain, Namespace
from noria.core.queue import RequestQueue
from noria.core.request import Claim, Request
from noria.sampling.params import SamplingParams
from support_engine import Harness, engine_config

HEAVY, LIGHT = Tenant("heavy"), Tenant("light")


class Counter:
    """A queue in fair order from which a test starts one request after another. Charges are prompts alone."""

    def __init__(self) -> None:
        self.order = FairShares()
        self.waiting = RequestQueue()
        self.num_accepted = 0

    def accept(self, tenant: Tenant, num_tokens: int) -> Request:
        chain = HashChain(Namespace("m"), 4)
        params = SamplingParams(max_tokens=0)
        request = Request(f"r{self.num_accepted}", [1] * num_tokens, params, 0, chain, Claim(tenant))
        request.max_known = num_tokens
        request.place = self.order.place(request, self.num_accepted)
        self.num_accepted += 1
        self.waiting.push(request)
        return request

    def start(self) -> Request:
        (request,) = self.waiting.first(1)
        self.waiting.remove(request)
        self.order.began(request)
        return request

    def end(self, request: Request) -> None:
        request.life.num_computed_once = request.num_prompt
        self.order.ended(request)

    def waits(self, tenant: Tenant) -> bool:
        return any(request.claim.tenant is tenant for request in self.waiting)


tenants = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(
    lambda weights: [Tenant(f"t{i}", weight) for i, weight in enumerate(weights)]
)


@given(st.data(), tenants)
def test_what_two_tenants_get_while_both_wait_differs_by_weight_by_no_more_than_their_largest_requests(
    data: st.DataObject, some: list[Tenant]
) -> None:
    counter = Counter()
    largest = dict.fromkeys(some, 0)
    history: list[
        tuple[Tenant, int, frozenset[Tenant]]
    ] = []  # who began, charge, who waited before and after
    running: list[Request] = []
    for _ in range(data.draw(st.integers(1, 60))):
        action = data.draw(st.sampled_from(["accept", "accept", "start", "end"]))
        if action == "accept":
            tenant, tokens = data.draw(st.sampled_from(some)), data.draw(st.integers(1, 50))
            counter.accept(tenant, tokens)
            largest[tenant] = max(largest[tenant], tokens)
        elif action == "start" and len(counter.waiting):
            before = {tenant for tenant in some if counter.waits(tenant)}
            request = counter.start()
            after = {tenant for tenant in some if counter.waits(tenant)}
            history.append((request.claim.tenant, request.num_prompt, frozenset(before & after)))
            running.append(request)
        elif action == "end" and running:
            counter.end(running.pop(data.draw(st.integers(0, len(running) - 1))))
    for one, other in combinations(some, 2):
        bound = Fraction(largest[one], one.weight) + Fraction(largest[other], other.weight)
        rounding = Fraction(len(history), UNIT)
        assert _widest_gap(history, one, other) <= bound + rounding


def _widest_gap(history: list[tuple[Tenant, int, frozenset[Tenant]]], one: Tenant, other: Tenant) -> Fraction:
    """Between the tokens by weight of two tenants, over every run of starts during which both waited."""
    widest = Fraction(0)
    for first in range(len(history)):
        gap = Fraction(0)
        for tenant, charge, waited in history[first:]:
            if not {one, other} <= waited:
                break
            gap += Fraction(charge, tenant.weight) * ((tenant is one) - (tenant is other))
            widest = max(widest, abs(gap))
    return widest


@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from(["start", "end", "cancel", "nothing"]))))
def test_one_tenant_is_served_first_come_first_served(steps: list[tuple[int, str]]) -> None:
    counter = Counter()
    running: list[Request] = []
    begun: list[str] = []
    for tokens, action in steps:
        counter.accept(ANYBODY, tokens)
        if action == "start":
            running.append(counter.start())
            begun.append(running[-1].id)
        elif action == "end" and running:
            counter.end(running.pop())
        elif action == "cancel":
            request = counter.waiting.last()
            counter.waiting.remove(request)
            counter.order.ended(request)
    begun += [request.id for request in counter.waiting]
    assert begun == sorted(begun, key=lambda name: int(name[1:]))


def test_with_one_tenant_every_plan_is_that_of_first_come_first_served() -> None:
    plans = {}
    for policy in (SchedulingPolicy.FAIR, SchedulingPolicy.FCFS):
        harness = Harness(engine_config(num_blocks=40, max_num_seqs=5, scheduling_policy=policy))
        for i in range(40):
            harness.add(f"r{i}", [i % 7, 2, 3] * (1 + i % 11), max_tokens=1 + i * 5 % 17)
            harness.step(i % 3)
        harness.run()
        plans[policy] = harness.runner.plans
    assert plans[SchedulingPolicy.FAIR] == plans[SchedulingPolicy.FCFS]


def test_a_newcomer_does_not_wait_behind_the_backlog_of_another_tenant() -> None:
    harness = Harness(engine_config(num_blocks=256, max_num_seqs=2))
    for i in range(100):
        harness.add(f"heavy{i}", [1, 2, i % 40], max_tokens=4, tenant=HEAVY)
    harness.step(3)
    harness.add("light", [5, 6, 7], max_tokens=4, tenant=LIGHT)
    harness.run()
    ended = [delta.request_id for delta in harness.deltas if delta.finish]
    assert ended.index("light") <= 4


def test_a_tenant_of_three_times_the_weight_gets_three_times_the_tokens() -> None:
    harness = Harness(engine_config(num_blocks=256, max_num_seqs=4))
    rich = Tenant("rich", weight=3)
    for i in range(80):
        harness.add(f"poor{i}", [1, 2, i % 40], max_tokens=5, tenant=HEAVY)
        harness.add(f"rich{i}", [3, 4, i % 40], max_tokens=5, tenant=rich)
    while sum(delta.finish is not None for delta in harness.deltas) < 80:
        harness.step()
    ended = [delta.request_id for delta in harness.deltas if delta.finish]
    assert 57 <= sum(name.startswith("rich") for name in ended[:80]) <= 63


def test_a_tenant_pays_for_what_its_requests_turned_out_to_take() -> None:
    counter = Counter()
    long = counter.accept(HEAVY, 10)
    counter.accept(LIGHT, 10)
    counter.start()
    long.token_ids += [1] * 200
    counter.end(long)
    late = counter.accept(HEAVY, 10)
    others = [counter.accept(LIGHT, 10) for _ in range(20)]
    assert others[-1].place < late.place
    assert counter.accept(LIGHT, 10).place > late.place


def test_a_tenant_gets_back_what_a_cancelled_request_was_charged() -> None:
    counter = Counter()
    counter.accept(LIGHT, 10)
    cancelled = counter.accept(HEAVY, 1000)
    counter.waiting.remove(cancelled)
    counter.order.ended(cancelled)
    assert counter.accept(HEAVY, 10).place[0] == 0


def test_nothing_is_remembered_once_nobody_wants_anything() -> None:
    counter = Counter()
    counter.accept(HEAVY, 500)
    counter.end(counter.start())
    assert counter.accept(HEAVY, 10).place[0] == 0
