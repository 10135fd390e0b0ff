"""The real loop, scheduler and runner over FakeModel: whatever the load, each request gets its solo answer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from noria.core.clock import VirtualClock
from noria.core.outputs import Delta, FinishReason
from noria.engine.loop import EngineLoop
from noria.engine.messages import GenerateRequest
from noria.engine.namespaces import namespaces
from noria.engine.records import Recorder
from noria.runner.runner import ModelRunner
from noria.sampling.logprobs import token_logprobs
from noria.sampling.params import SamplingParams
from support_engine import engine_config, make_scheduler
from support_fake_model import FakeModel, expected_logits, expected_outputs, fake_config

MODEL = fake_config(vocab_size=32, eos_token_ids=(31,))

# two tokens, so that prompts share prefixes
PROMPTS = st.lists(st.sampled_from([3, 4]), min_size=1, max_size=24)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1.0]),
    top_p=st.sampled_from([1.0, 0.9]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    min_tokens=st.integers(0, 3),
    max_tokens=st.integers(3, 12),
    ignore_eos=st.booleans(),
    stop_token_ids=st.sampled_from([(), (7,)]),
    logprobs=st.sampled_from([None, 1]),
    prompt_logprobs=st.sampled_from([None, None, None, 1]),
)
LOADS = st.lists(st.tuples(st.integers(0, 12), PROMPTS, PARAMS), min_size=1, max_size=10)
CROWD = [
    (0, [3] * 24, SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, prompt_logprobs=1))
] * 10


@settings(max_examples=60, deadline=None)
@given(
    load=LOADS,
    num_blocks=st.integers(10, 30),
    budget=st.integers(1, 40),
    max_num_seqs=st.integers(1, 8),
    prefix=st.booleans(),
)
@example(load=CROWD, num_blocks=10, budget=40, max_num_seqs=8, prefix=True)
@example(load=CROWD, num_blocks=10, budget=3, max_num_seqs=8, prefix=False)
def test_every_request_gets_the_answer_it_would_get_alone(load, num_blocks, budget, max_num_seqs, prefix):
    config = engine_config(
        num_blocks, 4, prefix, max_num_batched_tokens=max(budget, max_num_seqs), max_num_seqs=max_num_seqs
    )
    config = replace(config, model=MODEL)
    deltas = _serve(config, load)
    for index, (_, prompt, params) in enumerate(load):
        own = [delta for delta in deltas if delta.request_id == str(index)]
        outputs, finish = _solo(prompt, params, index)
        tokens = [token for delta in own for token in delta.token_ids]
        assert (tokens, own[-1].finish) == (outputs, finish)
        logits = expected_logits([*prompt, *outputs], MODEL.vocab_size)
        told = [entry for delta in own for entry in (*delta.prompt_logprobs, *delta.logprobs)]
        known = [*prompt, *outputs]
        asked = [p for p in range(1, len(known)) if _is_asked(p, len(prompt), params)]
        assert told == [token_logprobs(logits[p - 1], known[p], 1) for p in asked]


def _serve(config, load) -> list[Delta]:
    """All deltas of a load of (step of arrival, prompt, params); seeds are the places in the load."""
    model = FakeModel(config.cache.num_blocks, config.cache.block_size, MODEL)
    runner = ModelRunner(model, MODEL.eos_token_ids, config.cache.block_size)
    deltas: list[Delta] = []
    loop = EngineLoop(
        make_scheduler(config), runner, VirtualClock(), Recorder(), namespaces(config), deltas.extend
    )
    pending = sorted(enumerate(load), key=lambda entry: entry[1][0])
    for step in range(5000):
        while pending and pending[0][1][0] <= step:
            index, (_, prompt, params) = pending.pop(0)
            loop.add(GenerateRequest(str(index), tuple(prompt), params, seed=index), loop.clock.now())
        loop.step()
        if not pending and not loop.has_work:
            break
    runner.shutdown()
    return deltas


def _solo(prompt: list[int], params: SamplingParams, seed: int) -> tuple[list[int], FinishReason]:
    outputs = expected_outputs(prompt, params, seed, params.max_tokens, MODEL)
    ending = {*params.stop_token_ids, *(() if params.ignore_eos else MODEL.eos_token_ids)}
    for count, token_id in enumerate(outputs, start=1):
        if token_id in ending and count > params.min_tokens:
            return outputs[:count], FinishReason.STOP
    return outputs, FinishReason.LENGTH


def _is_asked(position: int, num_prompt: int, params: SamplingParams) -> bool:
    asked = params.prompt_logprobs if position < num_prompt else params.logprobs
    return asked is not None
