from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.errors import OverloadError, Refusal, RequestError
from noria.config.tenant import Tenant
from noria.engine.quota import Quota

METERED = Tenant("t", tokens_per_minute=600)  # ten a second


def _refusal(quota: Quota, tenant: Tenant, num_tokens: int, now_s: float) -> OverloadError:
    with pytest.raises(OverloadError) as caught:
        quota.check(tenant, num_tokens, now_s)
    return caught.value


def test_a_minutes_worth_may_be_taken_at_once_and_no_more() -> None:
    quota = Quota()
    quota.check(METERED, 600, 0.0)
    quota.spend(METERED, 600, 0.0)
    assert _refusal(quota, METERED, 1, 0.0).reason is Refusal.KEY_TOKENS


def test_the_time_to_come_back_after_is_when_the_bucket_holds_the_prompt() -> None:
    quota = Quota()
    quota.spend(METERED, 600, 0.0)
    assert _refusal(quota, METERED, 50, 2.0).retry_after_s == 3
    quota.check(METERED, 50, 5.0)


def test_outputs_are_paid_back_before_anything_else_comes() -> None:
    quota = Quota()
    quota.spend(METERED, 600, 0.0)
    quota.spend(METERED, 100, 0.0)
    assert _refusal(quota, METERED, 1, 0.0).retry_after_s == 11


def test_a_prompt_larger_than_the_bucket_comes_when_the_bucket_is_full() -> None:
    quota = Quota()
    quota.check(METERED, 5000, 0.0)
    quota.spend(METERED, 5000, 0.0)
    assert (
        _refusal(quota, METERED, 5000, 0.0).retry_after_s == 120
    )  # in truth 500; clients obey no longer ones
    quota.check(METERED, 5000, 500.0)


def test_as_many_requests_run_as_the_tenant_may_have() -> None:
    quota, tenant = Quota(), Tenant("t", max_concurrent=2)
    quota.num_requests = 1
    quota.check(tenant, 10, 0.0)
    quota.num_requests = 2
    assert _refusal(quota, tenant, 10, 0.0).reason is Refusal.KEY_REQUESTS


def test_without_limits_nothing_is_refused() -> None:
    quota, tenant = Quota(), Tenant("t")
    quota.num_requests = 10**6
    quota.spend(tenant, 10**9, 0.0)
    quota.check(tenant, 10**9, 0.0)


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0, 30))))
def test_over_any_time_no_more_is_taken_than_the_rate_and_one_minutes_worth(
    asked: list[tuple[int, float]],
) -> None:
    quota, now_s, taken = Quota(), 0.0, 0
    for num_tokens, gap_s in asked:
        now_s += gap_s
        try:
            quota.check(METERED, num_tokens, now_s)
        except OverloadError as refusal:
            now_s += refusal.retry_after_s  # long enough, always
            quota.check(METERED, num_tokens, now_s)
        quota.spend(METERED, num_tokens, now_s)
        taken += num_tokens
        assert taken <= 600 + 10 * now_s + 1e-6


def test_where_there_are_others_one_tenant_may_fill_its_share_of_the_queue_and_no_more() -> None:
    quota = Quota()
    quota.check_share(4, 4)
    quota.num_queued = 3
    quota.check_share(1, 4)
    with pytest.raises(OverloadError, match="3 requests of this API key wait") as caught:
        quota.check_share(2, 4)
    assert caught.value.reason is Refusal.KEY_REQUESTS
    with pytest.raises(RequestError, match=r"is 5; .* may have 4 waiting"):
        quota.check_share(5, 4)
