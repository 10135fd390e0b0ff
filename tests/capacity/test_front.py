"""What HTTP takes is learnt from requests that both sides saw, and is added to what a simulated client sees."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from noria.bench.outcome import Outcome, Status
from noria.bench.play import Play, make_play
from noria.bench.workload import make_workload
from noria.capacity.driving import Driver, bench_outcomes
from noria.capacity.front import NO_FRONT, Front, Passage, fit_front, passages
from noria.capacity.simulate import Deployment, simulate
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError
from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord
from support_capacity import simple_model
from support_engine import engine_config

TRUTH = Front(request_s=0.005, prompt_token_s=2e-6)
CONFIG = engine_config(num_blocks=1024, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)


def seen_and_recorded(
    count: int, held_up_share: float = 0.0
) -> tuple[list[Outcome], list[RequestRecord], dict[float, float]]:
    """What client and engine tell of the same requests, by clocks of their own, and the ends of steps."""
    draw = random.Random(3)
    seen, records, ends = [], [], {}
    for number in range(count):
        num_prompt, num_output = draw.randrange(1, 2000), draw.randrange(1, 50)
        late_s = 0.2 if draw.random() < held_up_share else 0.0
        accepted_s, made_s = 5000.0 + number, 5000.0 + number + 0.3
        ends[made_s] = made_s + 0.001
        first_s = number + 0.301 + TRUTH.seconds(num_prompt) + draw.gauss(0, 1e-4) + late_s
        records.append(record_of(str(number), accepted_s, made_s, num_prompt, num_output))
        seen.append(outcome_of(number, first_s, num_prompt, num_output))
    return seen, records, ends


def record_of(
    name: str, accepted_s: float, first_s: float, num_prompt: int, num_output: int
) -> RequestRecord:
    return RequestRecord(
        request_id=name,
        accepted_s=accepted_s,
        first_scheduled_s=accepted_s,
        first_token_s=first_s,
        last_token_s=first_s,
        finished_s=first_s,
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_output,
        num_cached_tokens=0,
        num_preemptions=0,
        priority=0,
        max_tokens=num_output,
        n=1,
        finish=FinishReason.LENGTH,
    )


def outcome_of(number: int, first_s: float, num_prompt: int, num_output: int) -> Outcome:
    return Outcome(
        index=number,
        arrival_s=number,
        sent_s=number,
        chunk_s=(first_s,),
        chunk_tokens=(num_output,),
        end_s=first_s,
        status=Status.OK,
        num_prompt=num_prompt,
        num_output=num_output,
        num_planned=num_prompt,
        num_asked=num_output,
    )


@pytest.mark.parametrize("held_up_share", [0.0, 0.2])
def test_what_http_takes_is_learnt_whoever_was_held_up(held_up_share: float) -> None:
    front = fit_front(passages(*seen_and_recorded(400, held_up_share)))
    assert front.request_s == pytest.approx(TRUTH.request_s, rel=0.05)
    assert front.prompt_token_s == pytest.approx(TRUTH.prompt_token_s, rel=0.05)


def test_requests_that_one_side_alone_tells_of_are_passed_over() -> None:
    seen, records, ends = seen_and_recorded(60)
    others = [record_of(f"other {place}", 5000.5 + place, 5000.8 + place, 3000, 1) for place in range(20)]
    found = passages(seen[::2], [*records, *others], ends)
    assert [one.num_prompt for one in found] == [one.num_prompt for one in seen[::2]]
    assert all(abs(one.beside_s - TRUTH.seconds(one.num_prompt)) < 1e-3 for one in found)


def test_too_few_requests_are_refused_with_their_number() -> None:
    with pytest.raises(ConfigError, match=r"19 requests .* too few.* 20"):
        fit_front(passages(*seen_and_recorded(19)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("num_lengths", [1, 2, 4])
@pytest.mark.parametrize("count", [20, 400])
def test_prompts_of_about_one_length_tell_nothing_of_a_slope(num_lengths: int, count: int) -> None:
    draw = random.Random(5)
    found = [Passage(256 + place % num_lengths, 0.004 + draw.gauss(0, 3e-4), True) for place in range(count)]
    front = fit_front(found)
    assert front.seconds(256) == pytest.approx(0.004, abs=3e-4)
    assert front.seconds(2048) == pytest.approx(0.004, abs=3e-4)


def test_prompts_of_two_lengths_that_differ_tell_both_parts() -> None:
    front = fit_front([Passage(length, TRUTH.seconds(length), True) for length in (100, 1100) * 10])
    assert front.request_s == pytest.approx(TRUTH.request_s)
    assert front.prompt_token_s == pytest.approx(TRUTH.prompt_token_s)


@pytest.mark.parametrize("is_one_length", [False, True])
def test_requests_that_meet_are_not_learnt_from_where_enough_are_alone(is_one_length: bool) -> None:
    found = fit_front(passages(*met_and_alone(30, is_one_length)))
    assert found.seconds(500) == pytest.approx(TRUTH.seconds(500), rel=0.01)


def test_requests_that_meet_are_learnt_from_where_too_few_are_alone() -> None:
    found = fit_front(passages(*met_and_alone(19, True)))
    assert found.seconds(500) == pytest.approx(TRUTH.seconds(500) + 0.05, rel=0.01)


def met_and_alone(
    num_alone: int, is_one_length: bool
) -> tuple[list[Outcome], list[RequestRecord], dict[float, float]]:
    """Fives at once, each 50 ms late, before every one that is sent alone."""
    draw = random.Random(4)
    seen, records, ends = [], [], {}
    for group in range(num_alone):
        for place in range(6):
            number, sent_s, late_s = 6 * group + place, group + 0.001 * place, 0.05
            if place == 5:
                sent_s, late_s = group + 0.5, 0.0
            num_prompt = 500 if is_one_length else draw.randrange(100, 1000)
            made_s = 5000 + sent_s + 0.3
            ends[made_s] = made_s + 0.001
            records.append(record_of(str(number), 5000 + sent_s, made_s, num_prompt, 7))
            first_s = sent_s + 0.301 + TRUTH.seconds(num_prompt) + late_s
            one = outcome_of(number, first_s, num_prompt, 7)
            seen.append(replace(one, arrival_s=sent_s, sent_s=sent_s))
    return seen, records, ends


def test_a_client_sees_both_ways_beside_the_engine() -> None:
    options = WorkloadOptions(prompt_tokens="20-60", output_tokens="5-15")
    play = make_play(make_workload(options, 40, 2048, None), LoadOptions(rate=0.1), 0)
    seen = {front: _seen(play, front) for front in (NO_FRONT, TRUTH)}
    for plain, real in zip(seen[NO_FRONT], seen[TRUTH], strict=True):
        way_s = TRUTH.seconds(plain.num_prompt)
        assert real.arrival_s == pytest.approx(plain.arrival_s)
        assert real.ttft_slo_s - plain.ttft_slo_s == pytest.approx(way_s)
        assert real.e2el_slo_s - plain.e2el_slo_s == pytest.approx(way_s)
        assert real.tpot_s == pytest.approx(plain.tpot_s)


def test_the_next_turn_is_sent_when_the_client_has_the_answer() -> None:
    options = WorkloadOptions(prompt_tokens="20", output_tokens="5", turns="2", pause=0.5)
    play = make_play(make_workload(options, 10, 2048, None), LoadOptions(rate=0.1), 0)
    by_index = {one.index: one for one in _seen(play, TRUTH)}
    for index, follower in play.followers.items():
        pause_s = by_index[follower].sent_s - by_index[index].end_s
        assert pause_s == pytest.approx(play.requests[follower].pause_s)


def _seen(play: Play, front: Front) -> list[Outcome]:
    driver = Driver(play, 0, front)
    run = simulate(Deployment(CONFIG, simple_model()), driver.first(), follow_up=driver.follow_up)
    return bench_outcomes(run.outcomes, play.requests, front)
