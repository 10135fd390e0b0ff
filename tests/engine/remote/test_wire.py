"""What crosses between processes arrives as it was sent."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from random import Random
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config import errors
from noria.config.errors import NoriaError, OverloadError, Refusal, RequestError
from noria.config.pooling import Finish, Head, Pooling, PoolingParams
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import TokenLogprobs
from noria.engine.messages import (
    EngineRequest,
    GenerateRequest,
    PoolRequest,
    RequestRecord,
    StepRecord,
    expand_choices,
)
from noria.engine.remote import wire
from noria.sampling.params import SamplingParams

ids = st.integers(0, 2**31 - 1)
numbers = st.floats(allow_nan=False)
counts = st.integers(0, 2**53)
texts = st.text(max_size=8)
logprobs = st.builds(
    TokenLogprobs, ids, numbers, counts, st.lists(st.tuples(ids, numbers), max_size=3).map(tuple)
)
params = st.builds(
    SamplingParams,
    n=st.integers(1, 4),
    temperature=st.floats(0, 2),
    top_k=st.integers(0, 9),
    top_p=st.floats(0.1, 1),
    logit_bias=st.dictionaries(ids, st.floats(-100, 100), max_size=3),
    seed=st.none() | st.integers(0, 2**64 - 1),
    stop=st.lists(st.text(min_size=1, max_size=4), max_size=3).map(tuple),
    stop_token_ids=st.lists(ids, max_size=3).map(tuple),
    max_tokens=st.none() | st.integers(5, 99),
    min_tokens=st.integers(0, 5),
    logprobs=st.none() | st.integers(0, 5),
    ignore_eos=st.booleans(),
)
requests = st.builds(
    GenerateRequest,
    request_id=texts,
    prompt_token_ids=st.lists(ids, max_size=5).map(tuple),
    params=params,
    seed=st.integers(0, 2**64 - 1),
    priority=st.integers(-9, 9),
    cache_salt=texts,
)


pool_params = st.builds(
    PoolingParams,
    pooling=st.sampled_from(Pooling),
    head=st.sampled_from(Head),
    finish=st.sampled_from(Finish),
    token_ids=st.lists(ids, max_size=3).map(tuple),
    dimensions=st.none() | st.integers(1, 99),
    num_first=st.integers(0, 9),
)
pool_requests = st.builds(
    PoolRequest,
    request_id=texts,
    prompt_token_ids=st.lists(ids, max_size=5).map(tuple),
    params=pool_params,
    priority=st.integers(-9, 9),
    cache_salt=texts,
    timeout_s=st.none() | st.floats(0.1, 99),
)


@given(st.lists(requests | pool_requests, max_size=3))
def test_requests_arrive_as_they_were_submitted(submitted: list[EngineRequest]) -> None:
    content = wire.encode(wire.Submit(7, 8, wire.packed(submitted)))
    command = wire.decode_command(content)
    assert isinstance(command, wire.Submit)
    assert (command.session, command.serial) == (7, 8)
    assert wire.unpacked(command.requests) == tuple(submitted)


def test_a_request_without_anything_stated_sends_no_parameter() -> None:
    assert wire.packed([GenerateRequest("a", (1,), SamplingParams(), 0)]).params == (("generate", {}),)


def test_what_requests_share_crosses_once_and_is_shared_again() -> None:
    prompt, other = tuple(range(1000)), (7,)
    params = SamplingParams(n=50, max_tokens=3)
    choices = [
        *expand_choices("a", prompt, params, Random(1)),
        *expand_choices("b", other, params, Random(1)),
    ]
    content = wire.encode(wire.Submit(1, 2, wire.packed(choices)))
    command = wire.decode_command(content)
    assert isinstance(command, wire.Submit)
    arrived = wire.unpacked(command.requests)
    assert arrived == tuple(choices)
    assert len({id(request.prompt_token_ids) for request in arrived}) == 2
    assert len({id(request.params) for request in arrived}) == 1
    alone = len(wire.encode(wire.Submit(1, 2, wire.packed(choices[:1]))))
    assert len(content) < alone + 200 * len(choices)


def test_every_sampling_parameter_but_code_can_cross() -> None:
    sent = wire.packed([GenerateRequest("a", (1,), SamplingParams(max_tokens=3), 0)])
    assert sent.params == (("generate", {"max_tokens": 3}),)
    names = {item.name for item in fields(SamplingParams)}
    assert names - set(wire.KINDS["generate"].defaults) == {"logits_processors"}
    with pytest.raises(RequestError) as refused:
        wire.packed([GenerateRequest("a", (1,), SamplingParams(logits_processors=(lambda *_: None,)), 0)])
    assert refused.value.param == "logits_processors"


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: counts,
    float: numbers,
    str: texts,
    bytes: st.binary(max_size=8),
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Of what records are made of; numbers fit 64 bits, as every count does."""
    if hint in PLAIN:
        return PLAIN[hint]
    parts = get_args(hint)
    if get_origin(hint) is tuple:
        if parts[-1] is ...:
            return st.lists(values(parts[0]), max_size=2).map(tuple)
        return st.tuples(*map(values, parts))
    if get_origin(hint) in (UnionType, Union):
        return st.one_of(*map(values, parts))
    if is_dataclass(hint):
        return records(hint)
    return st.from_type(hint)


def records(kind: type) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{name: values(hint) for name, hint in get_type_hints(kind).items()})


news = st.builds(
    wire.News,
    session=st.integers(0, 2**62),
    deltas=st.lists(
        st.builds(
            Delta,
            request_id=texts,
            token_ids=st.lists(ids, max_size=3).map(tuple),
            logprobs=st.lists(logprobs, max_size=2).map(tuple),
            prompt_logprobs=st.lists(logprobs, max_size=2).map(tuple),
            finish=st.none() | st.sampled_from(FinishReason),
            stop_token_id=st.none() | ids,
            num_cached_tokens=counts,
            error=st.none() | texts,
        ),
        max_size=3,
    ).map(tuple),
    steps=st.lists(records(StepRecord), max_size=2).map(tuple),
    requests=st.lists(records(RequestRecord), max_size=2).map(tuple),
)
messages = news | st.builds(wire.Welcome, counts) | st.builds(wire.Verdict, counts, counts, st.none())


@given(messages)
def test_messages_arrive_as_they_were_sent(message: wire.Message) -> None:
    assert wire.decode_message(wire.encode(message)) == message


@given(st.builds(wire.Cancel, counts, st.lists(texts).map(tuple), st.sampled_from(FinishReason)))
def test_cancels_arrive_as_they_were_sent(cancel: wire.Cancel) -> None:
    assert wire.decode_command(wire.encode(cancel)) == cancel


ERRORS = [
    RequestError("too long", "prompt"),
    RequestError("no field is at fault"),
    OverloadError("the queue is full", Refusal.QUEUED_TOKENS, 7),
    *(
        kind(f"a {name}")
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, NoriaError) and kind not in (RequestError, OverloadError)
    ),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_raised_on_the_other_side_as_on_this(error: NoriaError) -> None:
    sent = wire.Verdict(1, 2, wire.sent_error(error))
    verdict = wire.decode_message(wire.encode(sent))
    assert isinstance(verdict, wire.Verdict) and verdict.error is not None
    arrived = wire.error_of(verdict.error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
