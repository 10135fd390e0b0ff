"""What HTTP takes is learnt from requests that both sides saw, and is added to what a simulated client sees."""

from __future__ import annotations

import random

import pytest

from noria.bench.outcome import Outcome
from noria.bench.play import Play, make_play
from noria.bench.workload import make_workload
from noria.capacity.driving import Driver, bench_outcomes
from noria.capacity.front import NO_FRONT, Front, Passage, fit_front
from noria.capacity.simulate import Deployment, simulate
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError
from support_capacity import simple_model
from support_engine import engine_config

TRUTH = Front(request_s=0.003, prompt_token_s=2e-6, answer_s=0.002)
CONFIG = engine_config(num_blocks=1024, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)


def passages(count: int, held_up_share: float = 0.0) -> list[Passage]:
    draw = random.Random(3)
    found = []
    for number in range(count):
        num_prompt = draw.randrange(1, 2000)
        late_s = 0.2 if draw.random() < held_up_share else 0.0
        accepted_s = number + TRUTH.way_in_s(num_prompt) + draw.gauss(0, 1e-4) + late_s
        made_s = accepted_s + 0.05
        found.append(Passage(num_prompt, number, accepted_s, made_s, made_s + TRUTH.answer_s + late_s))
    return found


@pytest.mark.parametrize("held_up_share", [0.0, 0.2])
def test_the_ways_in_and_out_are_learnt_whoever_was_held_up(held_up_share: float) -> None:
    front = fit_front(passages(400, held_up_share))
    assert front.request_s == pytest.approx(TRUTH.request_s, rel=0.05)
    assert front.prompt_token_s == pytest.approx(TRUTH.prompt_token_s, rel=0.05)
    assert front.answer_s == pytest.approx(TRUTH.answer_s, rel=0.05)


def test_too_few_requests_are_refused_with_their_number() -> None:
    with pytest.raises(ConfigError, match=r"19 requests are too few.* 20"):
        fit_front(passages(19))


def test_a_client_sees_both_ways_beside_the_engine() -> None:
    options = WorkloadOptions(prompt_tokens="20-60", output_tokens="5-15")
    play = make_play(make_workload(options, 40, 2048, None), LoadOptions(rate=0.1), 0)
    seen = {front: _seen(play, front) for front in (NO_FRONT, TRUTH)}
    for plain, real in zip(seen[NO_FRONT], seen[TRUTH], strict=True):
        way_s = TRUTH.way_in_s(plain.num_prompt) + TRUTH.answer_s
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
