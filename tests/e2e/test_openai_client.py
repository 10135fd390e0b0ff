"""The stock OpenAI client against a real server on a real, small model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from openai import OpenAI

from noria.core.outputs import FinishReason
from noria.engine.messages import RequestRecord, StepRecord
from support_held import held
from support_serving import Serving, serving

QUESTION = [{"role": "user", "content": "the quick brown fox"}]


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[Serving]:
    with serving(model=tiny_model, max_model_len=2048, num_gpu_blocks_override=256) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Serving) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def strict(server: Serving) -> OpenAI:
    """Refuses replies of another shape. (Its own types for streamed and scored completions refuse what OpenAI's
    servers send there: an open finish_reason, and null for the first token's log-probability.)
    """
    url = f"{server.url}/v1"
    return OpenAI(base_url=url, api_key="none", max_retries=0, _strict_response_validation=True)


def test_a_chat_answers_with_usage(strict: OpenAI) -> None:
    answer = strict.chat.completions.create(model="test", messages=QUESTION, max_tokens=8, temperature=0)
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.parametrize("n", [1, 3])
def test_a_streamed_chat_is_the_whole_one_in_pieces(strict: OpenAI, n: int) -> None:
    asked = {"model": "test", "messages": QUESTION, "max_tokens": 12, "seed": 5, "n": n}
    whole = strict.chat.completions.create(**asked)
    texts, usages = [""] * n, []
    for chunk in strict.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        if chunk.usage is not None:
            usages.append(chunk.usage)
    assert texts == [choice.message.content for choice in whole.choices]
    assert len(usages) == 1
    assert usages[0].completion_tokens == whole.usage.completion_tokens


def test_a_streamed_completion_is_the_whole_one_in_pieces(client: OpenAI) -> None:
    asked = {"model": "test", "prompt": "the lazy dog", "max_tokens": 12, "seed": 5, "n": 2}
    whole = client.completions.create(**asked)
    texts = [""] * 2
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_a_seed_repeats_and_another_differs(strict: OpenAI) -> None:
    def text(seed: int) -> str:
        answer = strict.completions.create(
            model="test",
            prompt="the",
            max_tokens=24,
            seed=seed,
            temperature=1,
            extra_body={"ignore_eos": True},
        )
        return answer.choices[0].text

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_a_stop_string_ends_the_text_before_it(strict: OpenAI) -> None:
    asked = {"model": "test", "prompt": "the quick", "temperature": 0, "max_tokens": 40}
    text = strict.completions.create(**asked, extra_body={"ignore_eos": True}).choices[0].text
    stop = text[10:13]
    choice = strict.completions.create(**asked, stop=stop, extra_body={"ignore_eos": True}).choices[0]
    assert choice.text == text[: text.index(stop)]
    assert choice.finish_reason == "stop"


def test_logprobs_are_those_of_the_chosen_tokens_and_their_alternatives(strict: OpenAI) -> None:
    answer = strict.chat.completions.create(
        model="test", messages=QUESTION, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)  # greedy takes the best


def test_prompt_logprobs_are_complete_however_the_prompt_was_computed(client: OpenAI) -> None:
    prompt = list(range(5, 85))

    def scores() -> list:
        answer = client.completions.create(model="test", prompt=prompt, max_tokens=1, echo=True, logprobs=1)
        return answer.choices[0].logprobs.token_logprobs[:-1]

    cold = scores()
    client.completions.create(model="test", prompt=prompt, max_tokens=4)  # now it is cached
    assert cold[0] is None
    assert len(cold) == 80
    assert all(value < 0 for value in cold[1:])
    assert scores() == cold


def test_a_model_that_is_not_served_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `gpt` does not exist"):
        client.chat.completions.create(model="gpt", messages=QUESTION)


def test_too_long_a_prompt_is_refused_with_the_numbers(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 2048 tokens"):
        client.completions.create(model="test", prompt=[5] * 3000, max_tokens=1)


class Endings:
    """Waits for requests to end, in the engine's own records."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.ended = threading.Event()

    def on_step(self, record: StepRecord) -> None: ...

    def on_request(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.ended.set()


def test_a_client_that_goes_away_frees_its_blocks_within_one_step(
    server: Serving, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled_at: list[int] = []
    cancel = server.engine.cancel

    def watched(request_ids, *finish) -> None:
        cancelled_at.append(server.engine.stats().step)
        cancel(request_ids, *finish)

    endings = Endings()
    server.engine.recorder.add_listener(endings)
    monkeypatch.setattr(server.engine, "cancel", watched)
    with held(server.engine, (4, lambda asked: asked.num_cancelled >= 1)):  # one is under way then
        stream = client.completions.create(
            model="test", prompt="the", max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
        assert endings.ended.wait(timeout=60)
    [record] = endings.records
    assert record.finish is FinishReason.ABORT
    before = cancelled_at[0]
    steps = server.engine.recorder.steps()
    numbered = {step.step: number for number, step in enumerate(steps, 1)}
    last = max(numbered[s.step] for s in steps if any(w.request_id == record.request_id for w in s.work))
    assert last <= before + 1  # the step that was under way, and no other
    server.check_clean()


def test_metrics_and_timeline_tell_what_was_served(server: Serving, client: OpenAI) -> None:
    client.completions.create(model="test", prompt="the", max_tokens=4, extra_body={"ignore_eos": True})
    server.check_clean()
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert "vllm:generation_tokens_total" in metrics
    assert 'vllm:num_requests_running{engine="0",model_name="test"} 0.0' in metrics
    names = {
        event["name"] for event in httpx.get(f"{server.url}/debug/timeline", timeout=60).json()["traceEvents"]
    }
    assert "decode" in names
