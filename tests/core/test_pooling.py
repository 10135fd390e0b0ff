"""Prompts that are read and not continued: in the queue, the budget and the steps of everybody else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.errors import RequestError
from noria.config.pooling import Head, Pooling, PoolingParams
from noria.core.acceptance import check_ability, max_known_tokens
from noria.core.outputs import FinishReason
from noria.sampling.params import SamplingParams
from support_engine import MODEL, Harness, engine_config, solo_output
from support_ledger_runner import numbers_of

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def test_a_pooled_prompt_ends_with_the_step_that_reads_its_last_token() -> None:
    harness = Harness(engine_config())
    harness.pool("p", PROMPT)
    assert harness.run() == 1
    (delta,) = harness.deltas
    assert delta.pooled == numbers_of(PROMPT)
    assert (delta.finish, delta.token_ids) == (FinishReason.STOP, ())
    assert not any(work.samples for plan in harness.runner.plans for work in plan.work)


def test_a_prompt_of_the_whole_context_is_pooled() -> None:
    harness = Harness(engine_config(num_blocks=8, max_model_len=32))
    harness.pool("p", list(range(32)))
    harness.run()
    assert harness.last("p").pooled == numbers_of(range(32))


def test_pooled_prompts_share_a_step_with_decodes_within_its_budget() -> None:
    harness = Harness(engine_config(max_num_batched_tokens=16))
    harness.add("chat", PROMPT, max_tokens=12)
    harness.step()
    harness.pool("p", [7] * 40)
    harness.run()
    shares = [
        {work.request_id: work.num_new for work in plan.work} for plan in harness.runner.plans if plan.work
    ]
    assert [share.get("p", 0) for share in shares[1:4]] == [15, 15, 10]
    assert all(share["chat"] == 1 for share in shares[1:])
    assert harness.output("chat") == solo_output(PROMPT, 12)


def test_a_pooled_prompt_that_was_preempted_is_read_again_and_pooled_once() -> None:
    harness = Harness(engine_config(num_blocks=10, max_num_batched_tokens=3, max_model_len=32))
    harness.add("old", [1] * 4, max_tokens=28)
    harness.step(3)
    harness.pool("p", [2] * 24, pooling=Pooling.MEAN)
    harness.run()
    (pooled,) = (record for record in harness.loop.recorder.requests() if record.request_id == "p")
    assert pooled.num_preemptions > 0
    assert harness.last("p").pooled == numbers_of([2] * 24)
    assert sum(delta.pooled is not None for delta in harness.deltas) == 1
    assert harness.output("old") == solo_output([1] * 4, 28)


@pytest.mark.parametrize(
    ("params", "num_cached"),
    [
        ({}, 8),
        ({"head": Head.TOKENS, "token_ids": (1, 2)}, 8),
        ({"pooling": Pooling.MEAN}, 0),
        ({"pooling": Pooling.CLS}, 0),
        ({"pooling": Pooling.ALL}, 0),
    ],
)
def test_only_what_the_last_position_tells_may_come_after_a_cached_prefix(
    params: dict[str, object], num_cached: int
) -> None:
    harness = Harness(engine_config())
    harness.pool("first", [*PROMPT[:8], 40, 41], **params)
    harness.run()
    harness.pool("second", [*PROMPT[:8], 42, 43], **params)
    harness.run()
    assert harness.last("second").num_cached_tokens == num_cached
    assert harness.last("second").pooled == numbers_of([*PROMPT[:8], 42, 43])


def test_a_pooled_prompt_and_a_chat_share_their_beginning() -> None:
    harness = Harness(engine_config())
    harness.pool("mean", PROMPT, pooling=Pooling.MEAN)
    harness.run()
    harness.add("chat", PROMPT, max_tokens=3)
    harness.run()
    assert harness.last("chat").num_cached_tokens == 8
    assert harness.output("chat") == solo_output(PROMPT, 3)


def test_a_pooled_prompt_that_fails_fails_alone() -> None:
    harness = Harness(engine_config())
    harness.runner.failing.add("bad")
    harness.pool("bad", PROMPT)
    harness.pool("good", PROMPT[::-1])
    harness.run()
    assert (harness.last("bad").finish, harness.last("bad").error) == (FinishReason.ERROR, "made to fail")
    assert harness.last("good").pooled == numbers_of(PROMPT[::-1])


@pytest.mark.parametrize("steps_before", [0, 1, 2])
def test_a_pooled_prompt_is_cancelled_wherever_it_is(steps_before: int) -> None:
    harness = Harness(engine_config(max_num_batched_tokens=4))
    harness.pool("p", PROMPT)
    harness.step(steps_before)
    harness.loop.cancel(["p"])
    harness.run()
    assert harness.last("p").finish is FinishReason.ABORT
    assert harness.scheduler.kv.num_blocks_used == 0
    assert harness.runner.known_requests == set()


def test_the_record_of_a_pooled_prompt_has_no_tokens_and_no_first_one() -> None:
    harness = Harness(engine_config())
    harness.pool("p", PROMPT)
    harness.run()
    (record,) = harness.loop.recorder.requests()
    assert (record.finish, record.num_prompt_tokens, record.num_output_tokens) == (FinishReason.STOP, 11, 0)
    assert record.first_scheduled_s is not None and record.first_token_s is None


pools = st.builds(
    lambda prompt, kind: (prompt, {"pooling": kind}),
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.sampled_from(Pooling),
)
chats = st.builds(
    lambda prompt, num: (prompt, {"max_tokens": num}),
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.integers(0, 8),
)


@settings(max_examples=150, deadline=None)
@given(
    requests=st.lists(pools | chats, min_size=1, max_size=12),
    gaps=st.lists(st.integers(0, 2), min_size=12, max_size=12),
    cancelled=st.sets(st.integers(0, 11), max_size=3),
    num_blocks=st.integers(8, 20),
    budget=st.integers(1, 20),
    prefix=st.booleans(),
)
def test_any_mix_of_pooling_and_generation_gives_each_its_own(
    requests: list, gaps: list[int], cancelled: set[int], num_blocks: int, budget: int, prefix: bool
) -> None:
    config = engine_config(
        num_blocks, prefix=prefix, max_num_batched_tokens=budget, max_num_seqs=budget, max_model_len=32
    )
    harness = Harness(config)
    for number, ((prompt, params), gap) in enumerate(zip(requests, gaps, strict=False)):
        add = harness.pool if "pooling" in params else harness.add
        add(str(number), prompt, **params)
        harness.step(gap if harness.loop.has_work else 0)
        if number in cancelled:
            harness.loop.cancel([str(number)])
    harness.run()
    assert harness.scheduler.kv.num_blocks_used == 0
    for number, (prompt, params) in enumerate(requests):
        last = harness.last(str(number))
        if last.finish is FinishReason.ABORT:
            assert number in cancelled
        elif "pooling" in params:
            assert last.pooled == numbers_of(prompt)
        else:
            assert harness.output(str(number)) == solo_output(prompt, params["max_tokens"])


def test_a_prompt_longer_than_the_context_is_refused_with_the_numbers() -> None:
    message = r"maximum context length is 10 tokens. However, the prompt has 11 tokens \(context_length"
    with pytest.raises(RequestError, match=message):
        max_known_tokens(11, PoolingParams(), 10)


@pytest.mark.parametrize(
    ("params", "lacks", "message"),
    [
        (SamplingParams(), {"has_logits": False}, "it generates no text"),
        (PoolingParams(head=Head.CLASSES), {}, "has no classifier"),
        (PoolingParams(head=Head.TOKENS, token_ids=(1,)), {"has_logits": False}, "it gives no token logits"),
        (PoolingParams(head=Head.TOKENS), {}, r"token_ids must be at least 0 and below 50, got \[\]"),
        (PoolingParams(head=Head.TOKENS, token_ids=(50,)), {}, r"below 50, got \[50\]"),
        (PoolingParams(dimensions=9), {}, "dimensions must be at least 1 and at most 8, got 9"),
        (PoolingParams(dimensions=0), {}, "dimensions must be at least 1 and at most 8, got 0"),
    ],
)
def test_what_a_model_cannot_do_is_refused(params, lacks: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        check_ability(params, replace(MODEL, **lacks))
