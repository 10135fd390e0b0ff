"""What the runner makes of prompts that are pooled."""

from __future__ import annotations

import numpy as np
import pytest

from noria.config.pooling import Finish, Head, Pooling, PoolingParams
from noria.core.plan import NewRequest, Numbers, StepPlan, StepResult, Work
from noria.models.pooling_heads import Dense, PoolingHeads, finished
from noria.runner.runner import ModelRunner
from noria.sampling.params import SamplingParams
from support_fake_model import FakeModel, expected_hidden, expected_logits

PROMPT = (7, 3, 9, 9, 1, 30, 2, 8, 5, 6, 11)
GREEDY = SamplingParams(temperature=0.0)
HIDDEN = expected_hidden(PROMPT).astype(np.float64)


class Steps:
    """A runner over the fake model, given steps by hand. Request number i has blocks of its own."""

    def __init__(self, heads: PoolingHeads | None = None) -> None:
        self.model = FakeModel(num_blocks=32, block_size=4, heads=heads)
        self.runner = ModelRunner(self.model, (), 4)
        self._done: dict[str, int] = {}
        self._num_steps = 0

    def run(
        self, counts: dict[str, int], arrivals: dict[str, tuple[tuple[int, ...], object]] | None = None
    ) -> StepResult:
        new = [
            NewRequest(name, tokens, len(tokens), params, 0)
            for name, (tokens, params) in (arrivals or {}).items()
        ]
        blocks = {request.request_id: self._blocks(len(self._done) + i) for i, request in enumerate(new)}
        self._done |= {request.request_id: 0 for request in new}
        ends = {name: len(tokens) for name, (tokens, params) in (arrivals or {}).items() if params is GREEDY}
        work = tuple(
            Work(
                name,
                self._done[name],
                count,
                blocks.get(name, ()),
                ends.get(name) == self._done[name] + count,
            )
            for name, count in counts.items()
        )
        for name, count in counts.items():
            self._done[name] += count
        self._num_steps += 1
        return self.runner.collect(self.runner.launch(StepPlan(self._num_steps, tuple(new), work, (), ())))

    def _blocks(self, index: int) -> tuple[int, ...]:
        return tuple(range(4 * index, 4 * index + 4))


def array_of(numbers: Numbers) -> np.ndarray:
    return np.frombuffer(numbers.data, "<f4").reshape(numbers.shape)


def pooled(params: PoolingParams, chunks: list[int], heads: PoolingHeads | None = None) -> np.ndarray:
    """What PROMPT comes to when it is read in these chunks."""
    steps = Steps(heads)
    arrivals = {"p": (PROMPT, params)}
    for chunk in chunks[:-1]:
        assert steps.run({"p": chunk}, arrivals).pooled == ()
        arrivals = {}
    result = steps.run({"p": chunks[-1]}, arrivals)
    (entry,) = result.pooled
    assert (entry.request_id, result.sampled, result.failures) == ("p", (), ())
    return array_of(entry.numbers)


CHUNKS = [[11], [1] * 11, [4, 4, 3], [10, 1]]
EXPECTED = {
    Pooling.LAST: HIDDEN[-1],
    Pooling.CLS: HIDDEN[0],
    Pooling.MEAN: HIDDEN.mean(0),
    Pooling.ALL: HIDDEN,
}


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("pooling", Pooling)
def test_a_prompt_is_pooled_to_the_same_bits_however_it_is_cut(pooling: Pooling, chunks: list[int]) -> None:
    found = pooled(PoolingParams(pooling), chunks)
    np.testing.assert_allclose(found, EXPECTED[pooling], rtol=1e-6)
    np.testing.assert_array_equal(found, pooled(PoolingParams(pooling), [11]))


def test_normalised_states_have_length_1() -> None:
    found = pooled(PoolingParams(finish=Finish.NORMALIZE), [11])
    np.testing.assert_allclose(found, HIDDEN[-1] / np.linalg.norm(HIDDEN[-1]), rtol=1e-6)


def test_fewer_dimensions_are_cut_before_they_are_normalised() -> None:
    found = pooled(PoolingParams(dimensions=3, finish=Finish.NORMALIZE), [11])
    np.testing.assert_allclose(found, HIDDEN[-1, :3] / np.linalg.norm(HIDDEN[-1, :3]), rtol=1e-6)


@pytest.mark.parametrize("pooling", [Pooling.LAST, Pooling.ALL])
def test_classes_are_made_by_the_models_own_layers(pooling: Pooling) -> None:
    rng = np.random.default_rng(0)
    first, second, bias = rng.normal(size=(5, 8)), rng.normal(size=(3, 5)), rng.normal(size=3)
    heads = PoolingHeads({Head.CLASSES: (Dense(first, None, np.tanh), Dense(second, bias))})
    params = PoolingParams(pooling, Head.CLASSES, Finish.SOFTMAX)
    logits = np.tanh(EXPECTED[pooling] @ first.T) @ second.T + bias
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(pooled(params, [5, 6], heads), shares, rtol=1e-5)


def test_token_logits_are_those_of_the_prompts_last_position() -> None:
    params = PoolingParams(head=Head.TOKENS, token_ids=(9, 2))
    np.testing.assert_array_equal(pooled(params, [4, 7]), expected_logits(PROMPT)[-1][[9, 2]])


def test_pooled_and_generating_requests_run_in_one_pass() -> None:
    steps = Steps()
    arrivals = {
        "chat": (PROMPT, GREEDY),
        "mean": (PROMPT[:6], PoolingParams(Pooling.MEAN)),
        "tokens": (PROMPT, PoolingParams(head=Head.TOKENS, token_ids=(1,))),
        "last": (PROMPT[::-1], PoolingParams()),
    }
    result = steps.run({name: len(tokens) for name, (tokens, _) in arrivals.items()}, arrivals)
    assert steps.model.num_forwards == 1
    assert [entry.token_ids for entry in result.sampled] == [(int(expected_logits(PROMPT)[-1].argmax()),)]
    found = {entry.request_id: array_of(entry.numbers) for entry in result.pooled}
    assert list(found) == ["mean", "tokens", "last"]
    np.testing.assert_allclose(found["mean"], HIDDEN[:6].mean(0), rtol=1e-6)
    np.testing.assert_array_equal(found["tokens"], expected_logits(PROMPT)[-1][[1]])
    np.testing.assert_array_equal(found["last"], expected_hidden(PROMPT[::-1])[-1])


def test_prompt_logprobs_in_several_passes_leave_pooled_prompts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noria.runner.passes.split_into_passes.__defaults__", (4,))
    steps = Steps()
    scoring = SamplingParams(temperature=0.0, prompt_logprobs=0, max_tokens=0)
    arrivals = {"score": (PROMPT, scoring), "mean": (PROMPT, PoolingParams(Pooling.MEAN))}
    result = steps.run({"score": 11, "mean": 11}, arrivals)
    assert steps.model.num_forwards == 3
    (entry,) = result.pooled
    np.testing.assert_allclose(array_of(entry.numbers), HIDDEN.mean(0), rtol=1e-6)
    assert len(result.prompt_logprobs[0].logprobs) == 10


def test_a_prompt_whose_state_is_not_a_number_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    forward = steps.model.forward

    def poisoned(batch):
        outputs = forward(batch)
        outputs.hidden[batch.hidden_rows < batch.query_starts[1], 2] = np.nan
        return outputs

    monkeypatch.setattr(steps.model, "forward", poisoned)
    arrivals = {"bad": (PROMPT, PoolingParams()), "good": (PROMPT, PoolingParams())}
    result = steps.run({"bad": 11, "good": 11}, arrivals)
    (failure,) = result.failures
    assert failure.request_id == "bad"
    assert failure.message.endswith("1 of 8 are not finite, the first at [2]")
    assert [entry.request_id for entry in result.pooled] == ["good"]


@pytest.mark.parametrize("finish", Finish)
def test_the_last_function_is_exact_far_out(finish: Finish) -> None:
    numbers = np.array([-800.0, 0.0, 800.0])
    expected = {
        Finish.NONE: numbers,
        Finish.NORMALIZE: numbers / (800 * 2**0.5),
        Finish.SOFTMAX: [0.0, 0.0, 1.0],
        Finish.SIGMOID: [0.0, 0.5, 1.0],
    }
    np.testing.assert_allclose(finished(numbers, finish), expected[finish], atol=1e-300)


def test_a_state_of_zeros_is_normalised_to_zeros() -> None:
    np.testing.assert_array_equal(finished(np.zeros(3), Finish.NORMALIZE), np.zeros(3))
