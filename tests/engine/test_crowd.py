"""Whoever knows less of a request than the engine refuses it only where the engine would."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.engine import QueueConfig
from noria.config.errors import OverloadError, Refusal, RequestError
from noria.config.tenant import Tenant
from noria.core.outputs import Delta, FinishReason
from noria.engine.crowd import LEAST_WORK, Charged, Crowd, Work
from noria.engine.forecast import Forecast
from noria.engine.intake import Intake
from noria.engine.pace import Pace
from noria.engine.remote.crowd_cells import NUM_CELLS, CrowdCells
from support_intake import BUSY, FULL, PACE, config, crowd, request, teach

_PACES = st.none() | st.builds(Pace, st.floats(0, 0.1), st.floats(0, 0.01), st.floats(0, 0.05))
_BOUNDS = st.none() | st.integers(1, 100)
CROWDS = st.builds(
    Crowd,
    num_queued=st.integers(0, 100),
    num_queued_tokens=st.integers(0, 10_000),
    num_live=st.integers(0, 200),
    expected_output=st.floats(0, 1e5),
    limits=st.builds(QueueConfig, _BOUNDS, _BOUNDS),
    max_model_len=st.just(256),
    shares_prompts=st.booleans(),
    charged=st.builds(Charged, st.integers(0, 100), st.integers(0, 10_000)),
    forecast=st.builds(
        Forecast,
        _PACES,
        st.integers(1, 32),
        st.floats(0, 1),
        st.just(0.0) | st.floats(1, 1000),
        st.floats(0, 1),
        st.floats(0, 1000),
    ),
)
TIMES = st.floats(0.001, 1000)


def refusal(inside: Crowd, work: Work, timeout_s: float | None) -> OverloadError | None:
    try:
        inside.admit(work, timeout_s)
    except OverloadError as error:
        return error
    return None


@given(CROWDS, st.integers(1, 20), st.integers(1, 1000), st.floats(0, 500), st.none() | TIMES)
def test_what_is_refused_whatever_it_is_is_refused_when_it_is_known(
    inside: Crowd, num_seqs: int, num_prompt_tokens: int, output: float, timeout_s: float | None
) -> None:
    whole = refusal(inside, Work(num_seqs, num_prompt_tokens, output), timeout_s)
    if refusal(inside, LEAST_WORK, timeout_s):
        assert whole
    if refusal(inside, Work(num_seqs, 1, output), timeout_s):
        assert whole
    if whole:
        assert inside.is_waited_in


@given(CROWDS, TIMES, TIMES)
def test_with_less_time_nothing_is_taken_that_is_refused_whatever_it_is(
    inside: Crowd, one_s: float, other_s: float
) -> None:
    if refusal(inside, LEAST_WORK, max(one_s, other_s)):
        assert refusal(inside, LEAST_WORK, min(one_s, other_s))


@given(st.data(), st.integers(1, 8) | st.none(), st.integers(1, 200) | st.none())
def test_through_any_mix_of_lives_who_looks_at_the_page_refuses_only_what_the_engine_does(
    data: st.DataObject, most_requests: int | None, most_tokens: int | None
) -> None:
    cells = CrowdCells(memoryview(bytearray(8 * NUM_CELLS)).cast("q"))
    intake = Intake(config(requests=most_requests, tokens=most_tokens), cells.put)
    if data.draw(st.booleans()):
        teach(intake)
    tenants = [Tenant("a"), Tenant("b", max_concurrent=2), Tenant("c", tokens_per_minute=100)]
    inside: list[str] = []
    for number in range(data.draw(st.integers(1, 25))):
        if inside and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(inside))
            finish = data.draw(st.none() | st.sampled_from(FinishReason))
            intake.note([Delta(name, (7,), finish=finish)], 0.0)
            if finish is not None:
                inside.remove(name)
            continue
        n, num_prompt = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 60))
        timeout_s, max_tokens = data.draw(st.none() | st.floats(0.1, 20)), data.draw(st.integers(1, 150))
        tenant = data.draw(st.sampled_from(tenants))
        whole = [request(f"r{number}-{i}", num_prompt, max_tokens, tenant, timeout_s, n) for i in range(n)]
        seen = cells.get()
        assert seen is not None
        output = seen.forecast.expected_output(max_tokens, False)
        early = [refusal(seen, least, timeout_s) for least in (LEAST_WORK, Work(n, 1, output))]
        exact = refusal(seen, seen.work_of(whole), timeout_s)
        try:
            intake.take(whole, 0.0)
        except RequestError:
            continue  # more than one of several keys may ever have waiting: refused for good, whoever looks first
        except OverloadError as error:
            # The page knows no quotas; what it refuses, the engine refuses in the same words.
            assert exact is None or (exact.reason, str(exact)) == (error.reason, str(error))
            assert exact is not None or error.reason in (Refusal.KEY_REQUESTS, Refusal.KEY_TOKENS)
        else:
            assert (*early, exact) == (None, None, None)
            inside += [one.request_id for one in whole]


def test_a_full_queue_refuses_the_least_request_and_says_what_the_engine_says() -> None:
    error = refusal(FULL, LEAST_WORK, None)
    assert error is not None and error.reason is Refusal.QUEUED_REQUESTS
    assert str(error) == "3 requests wait for their first token; this server queues 3."
    tokens = replace(FULL, limits=QueueConfig(100, 30))
    error = refusal(tokens, LEAST_WORK, None)
    assert error is not None and error.reason is Refusal.QUEUED_TOKENS


def test_of_a_request_of_which_only_its_time_is_known_the_wait_alone_counts() -> None:
    wait_s = 0.001 * 40 + 5 * 20 * 0.090 / 8
    early = refusal(BUSY, LEAST_WORK, wait_s / 0.75 * 0.99)
    assert early is not None and early.reason is Refusal.DEADLINE
    assert str(early) == "This request has 1.54 s; about 1.17 s would pass before its turn came."
    assert refusal(BUSY, LEAST_WORK, wait_s / 0.75 * 1.01) is None


def test_what_its_answer_takes_counts_as_soon_as_its_length_is_known() -> None:
    # 20 steps of 90 ms and of the 4 ms that the prompts of those which come take in each: 1.88 s.
    early = refusal(BUSY, Work(1, 1, 20.0), 4.0)
    assert early is not None
    assert "1.17 s would pass before its turn came and 1.88 s until its answer was whole" in str(early)
    assert refusal(BUSY, Work(1, 1, 20.0), 4.1) is None
    assert refusal(BUSY, Work(1, 100, 20.0), 4.1) is not None


def test_a_prompt_that_alone_takes_too_long_is_let_in_only_where_nothing_is_ahead() -> None:
    calm = crowd(pace=PACE)
    work = Work(1, 5000, 5.0)
    assert calm.admit(work, 2.0) == 2.0
    assert refusal(replace(calm, num_queued=1, num_queued_tokens=10), work, 2.0) is not None


def test_an_answer_that_alone_takes_too_long_is_let_in_for_the_part_that_it_gets() -> None:
    assert refusal(BUSY, Work(1, 10, 500.0), 2.0) is None


def test_what_holds_for_everybody_is_said_before_the_limits_of_a_key() -> None:
    tenant = Tenant("t", max_concurrent=1)
    intake = Intake(config(requests=2))
    intake.take([request("a", tenant=tenant)], 0.0)
    with pytest.raises(OverloadError) as caught:
        intake.take([request("b", tenant=tenant)], 0.0)
    assert caught.value.reason is Refusal.KEY_REQUESTS
    intake.take([request("c")], 0.0)
    with pytest.raises(OverloadError) as caught:
        intake.take([request("b", tenant=tenant)], 0.0)
    assert caught.value.reason is Refusal.QUEUED_REQUESTS


def test_an_intake_tells_of_itself_from_its_start_and_after_every_change() -> None:
    told: list[Crowd] = []
    intake = Intake(config(requests=5, tokens=500), told.append)
    assert told == [intake.crowd()]
    intake.take([request("a", 10, 20)], 0.0)
    intake.note([Delta("a", (1,))], 0.0)
    intake.note([Delta("a", (), finish=FinishReason.STOP)], 0.0)
    numbers = [(one.num_queued, one.num_queued_tokens, one.num_live) for one in told]
    assert numbers == [(0, 0, 0), (1, 10, 1), (0, 0, 1), (0, 0, 0)]
    assert told[1].expected_output == told[1].output_of(request("a", 10, 20)) == 20
    assert (told[0].limits, told[0].max_model_len) == (QueueConfig(5, 500), 4096)


def _cells() -> tuple[CrowdCells, memoryview]:
    memory = memoryview(bytearray(8 * NUM_CELLS)).cast("q")
    return CrowdCells(memory), memory


@given(CROWDS, CROWDS)
def test_cells_give_back_what_was_put_last_and_nothing_once_they_are_cleared(one: Crowd, two: Crowd) -> None:
    cells, _ = _cells()
    assert cells.get() is None
    cells.put(one)
    assert cells.get() == one
    cells.put(two)
    assert cells.get() == two
    cells.clear()
    assert cells.get() is None


def test_numbers_that_are_being_written_are_not_taken() -> None:
    cells, memory = _cells()
    cells.put(FULL)
    memory[0] += 1  # as while somebody writes, or was killed while writing
    assert cells.get() is None
    memory[0] += 1
    assert cells.get() == FULL
    memory[0] += 1
    cells.clear()
    cells.put(BUSY)
    assert cells.get() == BUSY


def test_the_output_of_a_request_that_ignores_its_end_is_all_that_it_may_have() -> None:
    forecast = Forecast(PACE, 8, share_whole=0.25, mean_stopped=10.0)
    assert forecast.expected_output(100, True) == 100
    assert forecast.expected_output(100, False) == 0.25 * 100 + 0.75 * 10
    assert forecast.expected_output(4, False) == 4
