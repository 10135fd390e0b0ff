"""Every method of the stock OpenAI client that Noria answers, with its strict validation, on the embedded model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from support_serving import Serving

QUESTION: Any = [{"role": "user", "content": "What is the capital of Japan?"}]
GREEDY: dict[str, Any] = {"model": "smollm2", "temperature": 0}
TEXT: dict[str, Any] = {**GREEDY, "prompt": "The capital of France is", "max_tokens": 6}
NEVER_ENDS = {"ignore_eos": True}


def settings(served: Serving) -> dict[str, Any]:
    return {"base_url": f"{served.url}/v1", "api_key": "none", "max_retries": 0}


@pytest.fixture(scope="module")
def client(served: Serving) -> Iterator[OpenAI]:
    with OpenAI(**settings(served), _strict_response_validation=True) as made:
        yield made


@pytest.fixture(scope="module")
def lenient(served: Serving) -> Iterator[OpenAI]:
    """For two replies of which the client's own types forbid what OpenAI's servers send: a streamed completion's
    open finish_reason, and null for the log-probability of an echoed prompt's first token.
    """
    with OpenAI(**settings(served)) as made:
        yield made


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    [model] = client.models.list().data
    assert client.models.retrieve(model.id) == model
    assert (model.id, model.object, model.owned_by) == ("smollm2", "model", "noria")


def test_a_chat_is_answered(client: OpenAI) -> None:
    answer = client.chat.completions.create(**GREEDY, messages=QUESTION, max_completion_tokens=40)
    assert "Tokyo" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"


def test_a_streamed_chat_says_the_same(client: OpenAI) -> None:
    asked = {**GREEDY, "messages": QUESTION, "max_completion_tokens": 40}
    whole = client.chat.completions.create(**asked)
    received = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    texts = [choice.delta.content or "" for chunk in received for choice in chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert received[-1].usage == whole.usage


def test_the_chat_stream_helper_puts_the_answer_together(client: OpenAI) -> None:
    whole = client.chat.completions.create(**GREEDY, messages=QUESTION, max_completion_tokens=40)
    with client.chat.completions.stream(**GREEDY, messages=QUESTION, max_completion_tokens=40) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == "stop"


def test_raw_and_streamed_responses_show_the_headers(client: OpenAI) -> None:
    asked = {**GREEDY, "messages": QUESTION, "max_completion_tokens": 4}
    headers = {"X-Request-Id": "mine"}
    raw = client.chat.completions.with_raw_response.create(**asked, extra_headers=headers)
    assert (raw.headers["x-request-id"], raw.parse().id) == ("mine", "chatcmpl-mine")
    with client.chat.completions.with_streaming_response.create(**asked, extra_headers=headers) as response:
        assert response.headers["x-request-id"] == "mine"
        assert response.parse().choices[0].message.content == raw.parse().choices[0].message.content


def test_a_text_is_continued(client: OpenAI) -> None:
    answer = client.completions.create(**TEXT)
    assert answer.choices[0].text.startswith(" Paris")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


def test_several_choices_and_log_probabilities_of_a_text(client: OpenAI) -> None:
    answer = client.completions.create(**{**TEXT, "temperature": 1}, n=3, seed=1, logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        scores: Any = choice.logprobs
        assert "".join(scores.tokens).startswith(choice.text)  # and may have the end token besides
        assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) > 0
        for value, alternatives in zip(scores.token_logprobs, scores.top_logprobs, strict=True):
            assert value <= max(alternatives.values()) <= 0
    assert len({choice.text for choice in answer.choices}) > 1


def test_a_streamed_text_says_the_same(lenient: OpenAI) -> None:
    asked = {**TEXT, "n": 2, "seed": 7, "temperature": 1}
    whole = lenient.completions.create(**asked)
    texts = ["", ""]
    for chunk in lenient.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_an_echoed_prompt_comes_with_its_scores(lenient: OpenAI) -> None:
    [choice] = lenient.completions.create(**TEXT, echo=True, logprobs=1).choices
    assert choice.text.startswith("The capital of France is Paris")
    assert choice.logprobs is not None
    scores = choice.logprobs.token_logprobs
    assert scores is not None
    assert scores[0] is None
    assert all(score <= 0 for score in scores[1:])
    # The tokens that the model chose greedily are the likeliest, at better than one in a thousand each.
    assert all(score > math.log(1e-3) for score in scores[-6:])


def test_a_response_is_created(client: OpenAI) -> None:
    response = client.responses.create(
        **GREEDY,
        input=QUESTION,
        instructions="Answer briefly.",
        max_output_tokens=40,
        metadata={"a": "b"},
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    assert "Tokyo" in response.output_text
    assert (response.status, response.error, response.metadata) == ("completed", None, {"a": "b"})
    assert response.usage is not None
    logprobs = response.output[0].content[0].logprobs
    assert len(logprobs) == response.usage.output_tokens
    assert all(entry.logprob == max(top.logprob for top in entry.top_logprobs) for entry in logprobs)


def test_a_response_is_what_the_chat_of_the_same_messages_is(client: OpenAI) -> None:
    chat = client.chat.completions.create(**GREEDY, messages=QUESTION, max_completion_tokens=40)
    response = client.responses.create(**GREEDY, input=QUESTION, max_output_tokens=40)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.total_tokens == chat.usage.total_tokens


def test_a_response_is_streamed(client: OpenAI) -> None:
    asked = {**GREEDY, "input": "What is the capital of Japan?", "max_output_tokens": 12}
    whole = client.responses.create(**asked)
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    last = events[-1]
    assert last.type == f"response.{whole.status}"
    assert last.response.usage == whole.usage


def test_the_response_stream_helper_puts_the_answer_together(client: OpenAI) -> None:
    asked = {**GREEDY, "input": QUESTION, "max_output_tokens": 40}
    with client.responses.stream(**asked) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == deltas
    assert "Tokyo" in final.output_text


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "gpt"}, openai.NotFoundError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"max_completion_tokens": 10**6}, openai.BadRequestError),
        ({"messages": []}, openai.BadRequestError),
        ({"extra_body": {"guided_regex": "a"}}, openai.BadRequestError),
    ],
)
def test_a_refused_chat_raises_the_clients_own_error(
    client: OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{**GREEDY, "messages": QUESTION, **fields})
    assert caught.value.code is not None
    assert caught.value.message


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "gpt"}, openai.NotFoundError),
        ({"previous_response_id": "resp_1"}, openai.NotFoundError),
        ({"input": "word " * 3000}, openai.BadRequestError),
        ({"text": {"format": {"type": "table"}}}, openai.BadRequestError),
    ],
)
def test_a_refused_response_raises_the_clients_own_error(
    client: OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        client.responses.create(**{**GREEDY, "input": "hi", **fields})
    assert caught.value.param is not None


def test_a_response_that_is_not_kept_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")


def test_a_client_that_times_out_ends_its_request(served: Serving, client: OpenAI) -> None:
    impatient = client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        impatient.completions.create(**{**TEXT, "max_tokens": 2000}, extra_body=NEVER_ENDS)
    served.check_clean()


def test_a_stream_that_is_closed_ends_its_request(served: Serving, client: OpenAI) -> None:
    asked = {**GREEDY, "max_output_tokens": 1900, "extra_body": NEVER_ENDS}
    with client.responses.create(**asked, input="hi", stream=True) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                break
    served.check_clean()


def test_the_asynchronous_client_runs_every_kind_at_once(served: Serving) -> None:
    chat = {**GREEDY, "messages": QUESTION, "max_completion_tokens": 40}

    async def whole(client: AsyncOpenAI) -> str:
        return (await client.chat.completions.create(**chat)).choices[0].message.content or ""

    async def streamed(client: AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(**chat, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def helped(client: AsyncOpenAI) -> str:
        async with client.chat.completions.stream(**chat) as stream:
            return (await stream.get_final_completion()).choices[0].message.content or ""

    async def response(client: AsyncOpenAI) -> str:
        return (await client.responses.create(**GREEDY, input=QUESTION, max_output_tokens=40)).output_text

    async def scenario() -> list[str]:
        async with AsyncOpenAI(**settings(served), _strict_response_validation=True) as client:
            kinds = (whole, streamed, helped, response)
            return await asyncio.gather(*(kind(client) for kind in kinds for _ in range(2)))

    texts = asyncio.run(scenario())
    assert "Tokyo" in texts[0]
    assert set(texts) == {texts[0]}
