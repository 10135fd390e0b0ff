"""ModelRunner against FakeModel, whose logits betray any error in tokens, positions, slots, tables or copies."""

from __future__ import annotations

import threading
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.errors import EngineError
from noria.core.plan import BlockMove, NewRequest, StepPlan, Work
from noria.runner.runner import ModelRunner
from noria.sampling.grammar import Grammar
from noria.sampling.logprobs import token_logprobs
from noria.sampling.params import SamplingParams
from noria.sampling.token_masks import Masks
from support_fake_model import FakeModel, expected_logits, expected_outputs, fake_config
from support_plans import Driver, Job

GREEDY = SamplingParams(temperature=0.0)
PROMPT = [5, 9, 2, 60, 33, 5, 5, 17, 21, 40, 3]


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.runner.shutdown()


def test_a_prompt_computed_whole_samples_what_the_model_says(driver):
    driver.arrive("a", PROMPT, GREEDY)
    assert driver.run("a", 12) == expected_outputs(PROMPT, GREEDY, 0, 12)


@pytest.mark.parametrize("cut", range(1, len(PROMPT)))
def test_a_prompt_cut_anywhere_samples_the_same(driver, cut):
    driver.arrive("a", PROMPT, GREEDY)
    assert driver.step({"a": cut}).sampled == ()
    assert driver.run("a", 5) == expected_outputs(PROMPT, GREEDY, 0, 5)


def test_requests_in_one_batch_do_not_touch_each_other(driver):
    seeds = {"a": 1, "b": 2, "c": 3}
    prompts = {"a": PROMPT, "b": PROMPT[:1], "c": PROMPT[::-1] * 3}
    for name, prompt in prompts.items():
        driver.arrive(name, prompt, SamplingParams(), seeds[name])
    driver.step({"c": 7})
    driver.step({"a": len(PROMPT), "c": 9, "b": 1})
    driver.step({"b": 1, "c": 17, "a": 1})
    for name, prompt in prompts.items():
        expected = expected_outputs(prompt, SamplingParams(), seeds[name], 8)
        assert driver.run(name, 8) == expected


def test_a_copied_block_continues_like_its_source(driver):
    shared = driver.arrive("a", PROMPT, GREEDY)  # two full blocks and three tokens of a third
    driver.run("a", 1)
    fork = driver.arrive("b", [*PROMPT, 50, 51], GREEDY)
    fork.blocks = [*shared.blocks[:2], driver.free.pop(0)]
    fork.num_computed = len(PROMPT)
    driver.step({"a": 1, "b": 2}, moves=[BlockMove(shared.blocks[2], fork.blocks[2])])
    assert driver.run("b", 6) == expected_outputs([*PROMPT, 50, 51], GREEDY, 0, 6)
    assert driver.run("a", 6) == expected_outputs(PROMPT, GREEDY, 0, 6)


def test_blocks_given_ahead_of_need_are_used_in_their_order(driver):
    job = driver.arrive("a", PROMPT, GREEDY)
    job.blocks = [40, 3, 17, 9, 50]
    assert driver.run("a", 9) == expected_outputs(PROMPT, GREEDY, 0, 9)


@pytest.mark.parametrize("penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_a_preempted_request_goes_on_as_if_it_had_not_been(driver, penalty):
    params = SamplingParams(temperature=0.8, **{penalty: 1.7})
    expected = expected_outputs(PROMPT, params, 11, 30)
    driver.arrive("a", PROMPT, params, 11)
    driver.run("a", 14)
    job = driver.depart("a")
    driver.step({})
    driver.resume(job)
    driver.step({"a": 13})  # cuts within what were outputs
    assert driver.run("a", 30) == expected


def test_an_id_may_be_used_again_after_its_request_departed(driver):
    driver.arrive("a", PROMPT, GREEDY)
    driver.run("a", 3)
    driver.depart("a")
    driver.step({})
    driver.arrive("a", PROMPT[3:], GREEDY)
    assert driver.run("a", 4) == expected_outputs(PROMPT[3:], GREEDY, 0, 4)


@st.composite
def _requests(draw):
    params = st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7, 1.3]),
        top_k=st.sampled_from([0, 5]),
        top_p=st.sampled_from([1.0, 0.8]),
        frequency_penalty=st.sampled_from([0.0, 0.9]),
        repetition_penalty=st.sampled_from([1.0, 1.4]),
        logprobs=st.sampled_from([None, 2]),
        prompt_logprobs=st.sampled_from([None, 0, 3]),
    )
    prompts = st.lists(st.integers(0, 63), min_size=1, max_size=20)
    return draw(st.lists(st.tuples(prompts, params), min_size=1, max_size=5))


@settings(max_examples=60, deadline=None)
@given(requests=_requests(), schedule=st.integers(0, 2**32))
def test_any_mix_of_chunks_decodes_and_preemptions_samples_what_each_request_samples_alone(
    requests, schedule
):
    num_outputs, random = 8, Random(schedule)
    driver = Driver(num_blocks=48)
    away: list[Job] = []
    done: list[Job] = []
    for index, (prompt, params) in enumerate(requests):
        driver.arrive(str(index), prompt, params, seed=index)
    while driver.jobs or away:
        if away and random.random() < 0.5:
            driver.resume(away.pop())
        names = [name for name in driver.jobs if random.random() < 0.7]
        random.shuffle(names)
        driver.step({name: random.randint(1, driver.jobs[name].num_missing) for name in names})
        for name, job in list(driver.jobs.items()):
            if len(job.output_ids) >= num_outputs:
                done.append(driver.depart(name))
            elif name in names and random.random() < 0.1:
                away.append(driver.depart(name))
    driver.runner.shutdown()
    assert len(done) == len(requests)
    for job in done:
        _assert_matches_the_model(job, num_outputs)


def _assert_matches_the_model(job: Job, num_outputs: int) -> None:
    params, num_prompt = job.request.params, job.request.num_prompt
    prompt = job.token_ids[:num_prompt]
    assert job.output_ids == expected_outputs(prompt, params, job.request.seed, num_outputs)
    logits = expected_logits(job.token_ids)
    told = [
        token_logprobs(logits[position - 1], job.token_ids[position], num_top or 0)
        for position, num_top in enumerate(
            [params.prompt_logprobs] * num_prompt + [params.logprobs] * num_outputs
        )
        if position > 0 and num_top is not None
    ]
    assert job.prompt_logprobs + job.logprobs == told


@pytest.mark.parametrize("cut", range(1, len(PROMPT)))
def test_prompt_logprobs_of_a_chunked_prompt_tell_of_every_position_but_the_first(driver, cut):
    job = driver.arrive("a", PROMPT, SamplingParams(temperature=0.0, prompt_logprobs=2))
    first = driver.step({"a": cut})
    second = driver.step({"a": len(PROMPT) - cut})
    logits = expected_logits(PROMPT)
    assert job.prompt_logprobs == [token_logprobs(logits[p - 1], PROMPT[p], 2) for p in range(1, len(PROMPT))]
    starts = [part.start for result in (first, second) for part in result.prompt_logprobs]
    assert starts == [1, cut + 1] if cut + 1 < len(PROMPT) else [1]


def test_a_request_that_only_scores_its_prompt_samples_nothing(driver):
    arrival = NewRequest("a", tuple(PROMPT), len(PROMPT), SamplingParams(max_tokens=0, prompt_logprobs=0), 0)
    work = Work("a", 0, len(PROMPT), (0, 1, 2), samples=False)
    result = driver.runner.collect(driver.runner.launch(StepPlan(0, (arrival,), (work,), (), ())))
    assert result.sampled == ()
    assert [len(part.logprobs) for part in result.prompt_logprobs] == [len(PROMPT) - 1]


def _raise(prompt_ids, output_ids, logits):
    raise KeyError("no such thing")


def _shorten(prompt_ids, output_ids, logits):
    return logits[:-1]


def _forbid_all(prompt_ids, output_ids, logits):
    return np.full_like(logits, -np.inf)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (_raise, "logits processor _raise raised KeyError: 'no such thing'"),
        (
            _shorten,
            "logits processor _shorten must return an array of 64 numbers, got ndarray of shape (63,)",
        ),
        (_forbid_all, "no token is possible: all 64 logits are -inf"),
    ],
)
def test_a_request_whose_processor_fails_fails_alone(driver, processor, message):
    driver.arrive("a", PROMPT, GREEDY)
    driver.arrive("bad", PROMPT, SamplingParams(logits_processors=(processor,)))
    driver.arrive("b", PROMPT[1:], GREEDY)
    result = driver.step({"a": len(PROMPT), "bad": len(PROMPT), "b": len(PROMPT) - 1})
    assert [(failure.request_id, failure.message) for failure in result.failures] == [("bad", message)]
    assert [sampled.request_id for sampled in result.sampled] == ["a", "b"]
    driver.depart("bad")
    assert driver.run("a", 6) == expected_outputs(PROMPT, GREEDY, 0, 6)
    assert driver.run("b", 6) == expected_outputs(PROMPT[1:], GREEDY, 0, 6)


@pytest.mark.parametrize(
    "params", [GREEDY, SamplingParams(), SamplingParams(prompt_logprobs=1), SamplingParams(logprobs=1)]
)
def test_a_request_whose_logits_are_not_numbers_fails_alone(driver, params, monkeypatch):
    forward = driver.model.forward

    def poisoned(batch):
        outputs = forward(batch)
        outputs.logits[batch.logit_rows < batch.query_starts[1], 7] = np.nan
        return outputs

    driver.arrive("bad", PROMPT, params)
    driver.arrive("b", PROMPT[1:], GREEDY)
    monkeypatch.setattr(driver.model, "forward", poisoned)
    result = driver.step({"bad": len(PROMPT), "b": len(PROMPT) - 1})
    message = "the logits are not numbers: 1 of 64 are NaN, the first at token id 7"
    assert [(failure.request_id, failure.message) for failure in result.failures] == [("bad", message)]
    assert result.prompt_logprobs == ()
    monkeypatch.undo()
    assert driver.run("b", 4) == expected_outputs(PROMPT[1:], GREEDY, 0, 4)


def test_end_of_sequence_is_withheld_until_min_tokens():
    config = fake_config(vocab_size=8, eos_token_ids=(0, 1, 2, 3, 4, 5, 999))
    driver = Driver(config=config)
    driver.arrive("a", [1, 2, 3], SamplingParams(min_tokens=10))
    outputs = driver.run("a", 40)
    driver.runner.shutdown()
    assert all(token_id in (6, 7) for token_id in outputs[:10])
    assert any(token_id not in (6, 7) for token_id in outputs[10:])


def test_launch_returns_while_the_model_computes():
    entered, may_go_on = threading.Event(), threading.Event()

    def wait(batch):
        entered.set()
        assert may_go_on.wait(60)

    model = FakeModel(4, 4, before_forward=wait)
    runner = ModelRunner(model, (), 4)
    plan = StepPlan(0, (NewRequest("a", (1, 2), 2, GREEDY, 0),), (Work("a", 0, 2, (0,), True),), (), ())
    pending = runner.launch(plan)
    assert entered.wait(60)
    assert model.num_forwards == 0
    may_go_on.set()
    assert list(runner.collect(pending).sampled[0].token_ids) == expected_outputs([1, 2], GREEDY, 0, 1)
    runner.shutdown()


def test_an_error_of_the_model_reaches_the_caller_of_collect(driver, monkeypatch):
    def broken(batch):
        raise MemoryError("no room for logits")

    monkeypatch.setattr(driver.model, "forward", broken)
    driver.arrive("a", PROMPT, GREEDY)
    with pytest.raises(MemoryError, match="no room for logits"):
        driver.step({"a": 3})


def test_shutdown_ends_the_thread_and_refuses_further_steps(driver):
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("noria-runner")}
    driver.arrive("a", PROMPT, GREEDY)
    driver.run("a", 1)
    driver.runner.shutdown()
    assert [thread.is_alive() for thread in threads].count(False) == 1  # this runner's, whoever else has one
    with pytest.raises(EngineError, match="shut down"):
        driver.step({"a": 1})


def test_a_step_of_departures_alone_runs_no_model(driver):
    driver.arrive("a", PROMPT, GREEDY)
    driver.run("a", 1)
    driver.depart("a")
    before = driver.model.num_forwards
    assert driver.step({}).sampled == ()
    assert driver.model.num_forwards == before


_ARRIVAL = NewRequest("a", (1, 2, 3, 4, 5), 5, GREEDY, 0)


@pytest.mark.parametrize(
    ("arrivals", "work", "departures", "numbers"),
    [
        ((), (Work("ghost", 0, 1, (0,), False),), (), "ghost, which never arrived"),
        ((), (), ("ghost",), "ghost departs but never arrived"),
        ((_ARRIVAL, _ARRIVAL), (), (), "a arrives but is here already"),
        ((_ARRIVAL,), (Work("a", 0, 6, (0, 1), False),), (), "known=5 tokens"),
        ((_ARRIVAL,), (Work("a", 0, 5, (0,), True),), (), "the blocks hold 4 tokens"),
        ((_ARRIVAL,), (Work("a", 0, 4, (0,), True),), (), "samples before the last of known=5"),
        ((_ARRIVAL,), (Work("a", 0, 0, (0,), False),), (), "num_new=0"),
        (
            (_ARRIVAL,),
            (Work("a", 0, 2, (0,), False), Work("a", 0, 2, (1,), False)),
            (),
            "self.num_computed=2",
        ),
        (
            (_ARRIVAL,),
            (Work("a", 0, 2, (0,), False), Work("a", 3, 1, (1,), False)),
            (),
            "self.num_computed=2",
        ),
        ((NewRequest("a", (1, 64), 2, GREEDY, 0),), (), (), "highest=64"),
        ((NewRequest("a", (1, -1), 2, GREEDY, 0),), (), (), "lowest=-1"),
        ((NewRequest("a", (1, 2), 3, GREEDY, 0),), (), (), "num_prompt=3 of 2 tokens"),
        ((NewRequest("a", (), 0, GREEDY, 0),), (), (), "num_prompt=0 of 0 tokens"),
    ],
)
def test_a_plan_that_breaks_an_invariant_is_refused_with_the_numbers(
    driver, arrivals, work, departures, numbers
):
    with pytest.raises(AssertionError) as caught:
        driver.runner.collect(driver.runner.launch(StepPlan(0, arrivals, work, (), departures)))
    assert numbers in str(caught.value)


def test_a_request_whose_grammar_nobody_knows_fails_alone_and_never_chooses_freely(driver):
    held = SamplingParams(temperature=0.0, grammar=Grammar("regex", "a"))
    driver.arrive("held", PROMPT, held)
    driver.arrive("free", PROMPT[:3], GREEDY)
    result = driver.step({"held": len(PROMPT), "free": 3})
    assert [(failure.request_id, failure.message) for failure in result.failures] == [
        ("held", "its grammar has been lost")
    ]
    assert [sampled.request_id for sampled in result.sampled] == ["free"]
    assert list(result.sampled[0].token_ids) == expected_outputs(PROMPT[:3], GREEDY, 0, 1)


def test_a_request_that_sits_steps_out_samples_what_it_would_have_sampled(driver):
    params = SamplingParams(temperature=0.8, frequency_penalty=0.9, prompt_logprobs=0)
    job = driver.arrive("a", PROMPT, replace(params, grammar=Grammar("regex", "a")), 11)
    open_bits = np.full((1, 2), 2**32 - 1, dtype=np.uint32)
    for _ in range(2):  # with its prompt, and again with its last token
        result = driver.step({"a": job.num_missing}, masks=Masks(open_bits, unready=frozenset({"a"})))
        assert (result.sampled, result.failures, result.unready) == ((), (), ("a",))
        assert len(job.prompt_logprobs) == len(PROMPT) - 1
    while len(job.output_ids) < 8:
        driver.step({"a": job.num_missing}, masks=Masks(open_bits, {"a": 0}))
    assert job.output_ids == expected_outputs(PROMPT, params, 11, 8)
