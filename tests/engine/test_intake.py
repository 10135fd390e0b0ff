from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import QueueConfig
from noria.config.errors import OverloadError, Refusal, RequestError
from noria.config.tenant import Tenant
from noria.core.outputs import Delta, FinishReason
from noria.engine.intake import Intake
from support_intake import config, request, teach


def _refusal(intake: Intake, *requests, now_s: float = 0.0) -> OverloadError:
    with pytest.raises(OverloadError) as caught:
        intake.take(requests, now_s)
    intake.check()
    return caught.value


def _fill(intake: Intake, count: int, num_prompt: int = 10) -> None:
    for i in range(count):
        intake.take([request(f"old{i}", num_prompt)], 0.0)


def _start(intake: Intake, *names: str) -> None:
    intake.note([Delta(name, (5,)) for name in names], 0.0)


def _end(intake: Intake, *names: str) -> None:
    intake.note([Delta(name, finish=FinishReason.STOP) for name in names], 0.0)


def test_the_queue_takes_as_many_requests_as_it_may_hold() -> None:
    intake = Intake(config(requests=3))
    _fill(intake, 3)
    refusal = _refusal(intake, request("new"))
    assert refusal.reason is Refusal.QUEUED_REQUESTS
    assert refusal.retry_after_s == 1  # nothing is known yet
    assert "3 requests wait for their first token; this server queues 3" in str(refusal)


def test_one_of_several_tenants_cannot_fill_the_queue_alone() -> None:
    intake, one, other = Intake(config(requests=8)), Tenant("one"), Tenant("other")
    intake.take([request("first", tenant=other)], 0.0)
    _end(intake, "first")
    with pytest.raises(RequestError, match="may have 4 waiting"):
        intake.take([request(f"all-{i}", tenant=one, n=5) for i in range(5)], 0.0)
    intake.take([request(f"many-{i}", tenant=one, n=4) for i in range(4)], 0.0)
    assert _refusal(intake, request("more", tenant=one)).reason is Refusal.KEY_REQUESTS
    for i in range(4):
        intake.take([request(f"others-{i}", tenant=other)], 0.0)
    _start(intake, "many-0")
    intake.take([request("more", tenant=one)], 0.0)
    intake.check()


def test_one_tenant_alone_may_fill_the_queue() -> None:
    intake = Intake(config(requests=8))
    intake.take([request(f"all-{i}", tenant=Tenant("one"), n=8) for i in range(8)], 0.0)
    intake.check()


def test_the_queue_takes_as_many_prompt_tokens_as_it_may_hold() -> None:
    intake = Intake(config(tokens=100))
    _fill(intake, 9)
    intake.take([request("fits", 10)], 0.0)
    assert _refusal(intake, request("new", 1)).reason is Refusal.QUEUED_TOKENS


def test_a_first_token_and_an_end_make_room() -> None:
    intake = Intake(config(requests=2))
    _fill(intake, 2)
    _start(intake, "old0")
    intake.take([request("a")], 0.0)
    assert _refusal(intake, request("b"))
    _end(intake, "old1")
    intake.take([request("b")], 0.0)
    intake.check()


def test_what_is_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    intake = Intake(config(requests=2, tokens=50))
    intake.take([request(f"big{i}", 40) for i in range(10)], 0.0)
    assert _refusal(intake, *[request(f"more{i}", 40) for i in range(10)])


def test_a_body_of_many_texts_leaves_half_of_the_queue_to_others() -> None:
    intake = Intake(config(requests=8, tokens=1000))
    intake.take([request(f"text{i}", 400) for i in range(20)], 0.0)
    for i in range(4):
        intake.take([request(f"other{i}", 100)], 0.0)
    refusal = _refusal(intake, request("one-more", 100))
    assert refusal.reason is Refusal.QUEUED_REQUESTS
    assert str(refusal) == "24 requests wait for their first token; this server queues 8."
    # What does not count has to be read before anything of it makes room.
    _start(intake, *[f"text{i}" for i in range(16)])
    assert _refusal(intake, request("one-more", 100))
    _start(intake, "text16")
    intake.take([request("one-more", 100)], 0.0)
    intake.check()


def test_long_texts_of_one_body_leave_half_of_the_tokens_to_others() -> None:
    intake = Intake(config(tokens=1000))
    intake.take([request(f"text{i}", 400) for i in range(20)], 0.0)
    intake.take([request("other", 500)], 0.0)
    assert _refusal(intake, request("one-more", 1)).reason is Refusal.QUEUED_TOKENS
    intake.check()


def test_a_request_is_taken_whole_or_not_at_all() -> None:
    intake = Intake(config(requests=3))
    _fill(intake, 2)
    _refusal(intake, request("a"), request("b"))
    assert "a" not in intake
    intake.take([request("c")], 0.0)


def test_copies_of_a_prompt_count_once_as_tokens_where_they_share_its_cache() -> None:
    copies = [request(f"copy{i}", 40, n=5) for i in range(5)]
    shared = Intake(config(tokens=100))
    shared.take(copies, 0.0)
    shared.take([request("fits", 51)], 0.0)
    cache = replace(config().cache, enable_prefix_caching=False)
    apart = Intake(replace(config(), cache=cache, queue=QueueConfig(None, 100)))
    apart.take(copies, 0.0)
    assert _refusal(apart, request("new", 51)).reason is Refusal.QUEUED_TOKENS


def test_the_time_to_come_back_after_is_what_the_queue_takes_to_make_room() -> None:
    intake = Intake(config(requests=100))
    teach(intake)
    _fill(intake, 100)
    refusal = _refusal(intake, *[request(f"new{i}") for i in range(50)])
    # A request's share of full steps: 10 tokens of 1 ms to read, 20 of (10 + 4 * 10) / 4 ms to make.
    assert refusal.retry_after_s == pytest.approx(50 * (0.010 + 20 * 0.0125), abs=1.5)


def test_a_request_that_the_queue_would_make_late_is_refused_before_any_work() -> None:
    intake = Intake(config(max_num_seqs=4))
    teach(intake)
    _fill(
        intake, 44
    )  # 40 too many, each with 0.25 s of steps; 440 tokens to read: about 10.7 s, and 1 s of its own
    assert _refusal(intake, request("new", timeout_s=10.0)).reason is Refusal.DEADLINE
    intake.take([request("patient", timeout_s=20.0)], 0.0)
    intake.take([request("very patient")], 0.0)


def test_the_time_to_come_back_after_is_when_the_queue_would_not_make_it_late() -> None:
    intake = Intake(config(max_num_seqs=4))
    teach(intake)
    _fill(intake, 44)
    soon, later = (
        _refusal(intake, request("a", timeout_s=5.0)),
        _refusal(intake, request("b", timeout_s=10.0)),
    )
    assert soon.retry_after_s - later.retry_after_s == pytest.approx(0.85 * 5, abs=1)


def test_a_request_must_begin_while_there_is_time_for_its_own_work() -> None:
    intake = Intake(config(max_num_seqs=4))
    teach(intake)
    # Alone it takes 10 ms to read and 20 steps of 20 ms.
    assert intake.take([request("a", timeout_s=10.0)], 5.0) == pytest.approx(15 - 1.1 * 0.41, abs=0.1)
    assert intake.take([request("without deadline")], 5.0) == math.inf


def test_with_nothing_ahead_no_request_is_refused_for_its_deadline_however_short() -> None:
    intake = Intake(config())
    teach(intake)
    intake.take([request("new", num_prompt=500, max_tokens=500, timeout_s=0.01)], 0.0)


def test_a_request_that_asks_for_more_than_its_time_holds_is_let_in_for_what_it_gets() -> None:
    intake = Intake(config(max_num_seqs=4))
    teach(intake, num_output=500)
    _fill(intake, 3, num_prompt=100)
    intake.take([request("greedy", max_tokens=500, timeout_s=2.0)], 0.0)  # 25 s of its own, after 0.3 s


def test_before_anything_was_seen_no_deadline_is_refused() -> None:
    intake = Intake(config(max_num_seqs=1))
    _fill(intake, 100)
    intake.take([request("new", timeout_s=0.001)], 0.0)


def test_one_tenants_requests_at_once_are_users_requests_not_their_choices() -> None:
    tenant = Tenant("t", max_concurrent=2)
    intake = Intake(config())
    intake.take([request("a0", tenant=tenant), request("a1", tenant=tenant)], 0.0)
    intake.take([request("b", tenant=tenant)], 0.0)
    assert _refusal(intake, request("c", tenant=tenant)).reason is Refusal.KEY_REQUESTS
    intake.take([request("other", tenant=Tenant("u", max_concurrent=1))], 0.0)
    _end(intake, "a0")
    assert _refusal(intake, request("c", tenant=tenant))
    _end(intake, "a1")
    intake.take([request("c", tenant=tenant)], 0.0)


def test_a_tenants_tokens_are_those_of_its_prompts_and_outputs() -> None:
    tenant = Tenant("t", tokens_per_minute=60)
    intake = Intake(config())
    intake.take([request("a", num_prompt=50, tenant=tenant)], 0.0)
    intake.note([Delta("a", (1, 2, 3, 4, 5))], 0.0)
    assert _refusal(intake, request("b", num_prompt=10, tenant=tenant)).retry_after_s == 5
    intake.take([request("b", num_prompt=10, tenant=tenant)], 5.0)


def test_a_refused_request_costs_its_tenant_nothing() -> None:
    tenant = Tenant("t", max_concurrent=5, tokens_per_minute=60)
    intake = Intake(config(requests=1))
    intake.take([request("other")], 0.0)
    assert _refusal(intake, request("a", num_prompt=60, tenant=tenant)).reason is Refusal.QUEUED_REQUESTS
    _end(intake, "other")
    intake.take([request("a", num_prompt=60, tenant=tenant)], 0.0)


TENANTS = [Tenant("a", max_concurrent=3), Tenant("b", tokens_per_minute=200), Tenant("c", weight=2)]


@given(st.data(), st.integers(1, 8) | st.none(), st.integers(1, 200) | st.none())
def test_after_any_mix_of_lives_every_count_is_exact_and_in_the_end_zero(
    data: st.DataObject, most_requests: int | None, most_tokens: int | None
) -> None:
    intake = Intake(config(requests=most_requests, tokens=most_tokens))
    teach(intake)
    inside: list[str] = []
    now_s = 0.0
    for number in range(data.draw(st.integers(1, 30))):
        now_s += data.draw(st.floats(0, 5))
        action = data.draw(st.sampled_from(["submit", "submit", "token", "end"]))
        if action == "submit":
            names = [f"r{number}-{i}" for i in range(data.draw(st.integers(1, 4)))]
            tenant = data.draw(st.sampled_from(TENANTS))
            num_prompt = data.draw(st.integers(1, 60))
            timeout_s = data.draw(st.none() | st.floats(0.1, 100))
            one = [request(name, num_prompt, 20, tenant, timeout_s, len(names)) for name in names]
            try:
                intake.take(one, now_s)
                inside += names
            except OverloadError as refusal:
                assert 1 <= refusal.retry_after_s <= 120
            except RequestError as refusal:  # more choices than one of several tenants may ever have waiting
                assert len(names) > most_requests // 2
                assert refusal.param == "n"
        elif inside:
            name = inside[data.draw(st.integers(0, len(inside) - 1))]
            finish = data.draw(st.sampled_from(FinishReason)) if action == "end" else None
            intake.note([Delta(name, data.draw(st.sampled_from([(), (7,)])), finish=finish)], now_s)
            if finish is not None:
                inside.remove(name)
        intake.check()
    intake.note([Delta(name, finish=FinishReason.LOST) for name in inside], now_s)
    intake.check()
    assert (intake._num_queued, intake._queued_tokens, intake._expected_output) == (0, 0, 0)
    assert all(quota.num_requests == 0 for quota in intake._quotas.values())
