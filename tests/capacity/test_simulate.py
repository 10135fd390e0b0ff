"""A simulated run is the real scheduler's, in foretold time, and the same every time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from noria.capacity.arrivals import Arrival, Ending
from noria.capacity.replica import Outcome
from noria.capacity.routing import ROUTERS, SamePrefix, router
from noria.capacity.simulate import Deployment, simulate
from noria.config.engine import QueueConfig
from noria.config.errors import ConfigError
from noria.core.outputs import FinishReason
from support_capacity import poisson, simple_model
from support_engine import engine_config

CONFIG = engine_config(num_blocks=512, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)


def deployment(num_replicas: int = 1, **scheduler: object) -> Deployment:
    config = replace(CONFIG, scheduler=replace(CONFIG.scheduler, **scheduler))
    return Deployment(config, simple_model(), num_replicas)


def test_one_request_takes_what_its_steps_take() -> None:
    arrival = Arrival("a", 1.0, tuple(range(1, 59)), 48, 10)
    (outcome,) = simulate(deployment(), [arrival]).outcomes
    prefill_s = 0.004 + 48 * 0.0003 + 0.002
    decode_s = 0.004 + 0.0003 + 0.002
    expected = [1.0 + prefill_s + decode_s * place for place in range(10)]
    assert outcome.token_times_s == pytest.approx(expected)
    assert outcome.finish is FinishReason.LENGTH
    assert outcome.record is not None and outcome.record.num_output_tokens == 10


def test_an_answer_that_ended_by_itself_or_from_outside_has_its_length_again() -> None:
    tokens = tuple(range(1, 40))
    arrivals = [Arrival(end.value, 0.0, tokens, 30, None, end) for end in (Ending.TOKEN, Ending.CANCEL)]
    outcomes = simulate(deployment(), arrivals).outcomes
    assert [len(outcome.token_times_s) for outcome in outcomes] == [9, 9]
    assert {outcome.finish for outcome in outcomes} == {FinishReason.STOP}


def test_the_same_load_gives_the_same_run() -> None:
    load = poisson(random.Random(1), 20, 300, 48, 20)
    runs = [simulate(deployment(), load, seed=3) for _ in range(2)]
    assert [one.token_times_s for one in runs[0].outcomes] == [one.token_times_s for one in runs[1].outcomes]
    assert runs[0].steps == runs[1].steps


def test_an_mdl_queue_waits_as_theory_says() -> None:
    """One place and one step a request is an M/D/1 queue: mean wait rho s / (2 (1 - rho)) (Pollaczek, Khinchine)."""
    service_s = 0.004 + 40 * 0.0003 + 0.002
    load = poisson(random.Random(2), 0.5 / service_s, 8_000, 40, 1)
    run = simulate(deployment(max_num_seqs=1), load, keeps_steps=False)
    waits = [outcome.token_times_s[0] - outcome.arrival.at_s - service_s for outcome in run.outcomes]
    assert sum(waits) / len(waits) == pytest.approx(0.5 * service_s / (2 * 0.5), rel=0.06)


def test_two_replicas_share_what_one_cannot_carry() -> None:
    load = poisson(random.Random(3), 60, 600, 48, 20)
    one, two = (simulate(deployment(count), load) for count in (1, 2))
    assert two.seconds < 0.7 * one.seconds
    shares = [sum(outcome.replica == index for outcome in two.outcomes) for index in (0, 1)]
    assert min(shares) > 0.4 * len(load)


@pytest.mark.parametrize("name", sorted(ROUTERS))
def test_every_router_serves_every_request(name: str) -> None:
    load = poisson(random.Random(4), 40, 200, 32, 8)
    run = simulate(deployment(3), load, router(name))
    assert all(outcome.finish is FinishReason.LENGTH for outcome in run.outcomes)


def test_prompts_that_begin_alike_find_each_other_behind_the_prefix_router() -> None:
    draw = random.Random(5)
    stems = [tuple(draw.randrange(1, 10**6) for _ in range(160)) for _ in range(9)]
    load = [
        Arrival(
            f"r{i}",
            0.05 * i,
            draw.choice(stems) + tuple(draw.randrange(1, 10**6) for _ in range(40)),
            180,
            20,
        )
        for i in range(200)
    ]
    cached = {
        name: sum(outcome.num_cached for outcome in simulate(deployment(3), load, router(name)).outcomes)
        for name in ("prefix", "round-robin")
    }
    assert cached["prefix"] >= (200 - 9) * 160
    assert cached["round-robin"] < cached["prefix"]
    assert isinstance(router("prefix"), SamePrefix)


def test_an_unknown_router_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no router is called 'best'; there are round-robin"):
        router("best")


def test_what_a_full_queue_refuses_is_told_and_costs_nothing() -> None:
    config = replace(CONFIG, queue=QueueConfig(max_num_queued_reqs=4))
    load = poisson(random.Random(6), 1000, 100, 48, 20)
    run = simulate(Deployment(config, simple_model()), load)
    refused = [outcome for outcome in run.outcomes if outcome.refusal]
    assert refused and all(not outcome.token_times_s for outcome in refused)
    assert "this server queues 4" in (refused[0].refusal or "")
    assert sum(outcome.finish is FinishReason.LENGTH for outcome in run.outcomes) == 100 - len(refused)


def test_a_prompt_that_no_replica_can_hold_is_refused_alone() -> None:
    arrivals = [Arrival("huge", 0.0, tuple(range(1, 9000)), 8990, 9), Arrival("fine", 0.1, (5, 6, 7), 2, 1)]
    huge, fine = simulate(deployment(), arrivals).outcomes
    assert "maximum context length" in (huge.refusal or "")
    assert fine.finish is FinishReason.LENGTH


def test_steps_outside_of_what_was_measured_are_counted() -> None:
    model = simple_model()
    narrow = replace(model, box=model.box._replace(highest=model.box.highest._replace(num_seqs=2)))
    load = poisson(random.Random(7), 100, 50, 16, 30)
    assert simulate(Deployment(CONFIG, narrow), load).foreign_share > 0.5
    assert simulate(Deployment(CONFIG, model), load).foreign_share == 0.0


def test_a_closed_loop_keeps_as_many_inside_as_it_says() -> None:
    load = iter(poisson(random.Random(8), 1.0, 100, 48, 20))
    first = [replace(next(load), at_s=0.0) for _ in range(4)]

    def next_one(outcome: Outcome) -> list[Arrival]:
        return [replace(arrival, at_s=outcome.finished_s) for arrival in [next(load, None)] if arrival]

    run = simulate(deployment(), first, follow_up=next_one)
    assert len(run.outcomes) == 100
    assert max(step.num_running + step.num_waiting for step in run.steps[0]) <= 4
    inside = [
        sum(one.arrival.at_s <= at_s < one.finished_s for one in run.outcomes)
        for at_s in (0.1 * place for place in range(1, int(10 * run.outcomes[-5].finished_s)))
    ]
    assert set(inside) == {4}
