"""The stock client against the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from noria.core.outputs import Delta, FinishReason
from support_server import FakeEngine, Server, says, serving

MESSAGES = [{"role": "user", "content": "turn"}]
KEY = "the-key"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving(FakeEngine(says("the wheel turns")), api_key=(KEY,)) as server:
        yield server


@pytest.fixture(scope="module")
def client(running: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{running.url}/v1", api_key=KEY, max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["wheel", "wheel-alias"]
    assert client.models.retrieve("wheel").owned_by == "noria"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("x")


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="wheel", messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, max_completion_tokens=20
    )
    assert [choice.message.content for choice in answer.choices] == ["the wheel turns"] * 2
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs.content[1].token == "he"
    assert answer.usage.completion_tokens == 10


def test_a_chat_is_streamed(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="wheel", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    received = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in received if chunk.choices)
    assert text == "the wheel turns"
    assert received[-1].usage.completion_tokens == 5
    assert received[-2].choices[0].finish_reason == "stop"


def test_the_stream_helper_puts_the_answer_together(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="wheel", messages=MESSAGES, n=2) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["the wheel turns"] * 2


def test_raw_responses_show_the_headers(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="wheel", messages=MESSAGES, extra_headers={"X-Request-Id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse().id == "chatcmpl-mine"


def test_a_text_is_continued(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="wheel", prompt=["a", "b"], logprobs=2, max_tokens=3)
    assert [choice.text for choice in answer.choices] == ["the wheel"] * 2
    assert answer.choices[0].logprobs.tokens == ["t", "he", " wheel"]
    assert answer.choices[0].finish_reason == "length"


def test_a_text_is_streamed(client: openai.OpenAI) -> None:
    # The client's own type of these chunks forbids the null finish_reason that every server sends.
    lenient = client.with_options(_extra_kwargs={"_strict_response_validation": False})
    stream = lenient.completions.create(model="wheel", prompt="a", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "the wheel turns"


def test_extra_fields_are_reached_by_extra_body(client: openai.OpenAI, running: Server) -> None:
    client.chat.completions.create(
        model="wheel", messages=MESSAGES, extra_body={"top_k": 3, "repetition_penalty": 1.25}
    )
    params = running.engine.submitted[-1].params
    assert (params.top_k, params.repetition_penalty) == (3, 1.25)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "x"}, openai.NotFoundError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"messages": []}, openai.BadRequestError),
        ({"max_completion_tokens": 10**6}, openai.BadRequestError),
    ],
)
def test_errors_arrive_as_the_clients_own(
    client: openai.OpenAI, fields: dict, error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": "wheel", "messages": MESSAGES, **fields})
    assert caught.value.body["message"]


def test_a_wrong_key_is_told(running: Server) -> None:
    with (
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="wrong", max_retries=0) as other,
        pytest.raises(openai.AuthenticationError),
    ):
        other.models.list()


def test_an_error_inside_a_stream_raises(running: Server, client: openai.OpenAI) -> None:
    before = running.engine.script
    running.engine.script = lambda r: [
        Delta(r.request_id, (5,)),
        Delta(r.request_id, finish=FinishReason.ERROR, error="bad"),
    ]
    try:
        with pytest.raises(openai.APIError, match="bad"):
            list(client.chat.completions.create(model="wheel", messages=MESSAGES, stream=True))
    finally:
        running.engine.script = before


def test_the_asynchronous_client_runs_many_at_once(running: Server) -> None:
    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        if number % 2:
            answer = await client.chat.completions.create(model="wheel", messages=MESSAGES)
            return answer.choices[0].message.content or ""
        stream = await client.chat.completions.create(model="wheel", messages=MESSAGES, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def scenario() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{running.url}/v1", api_key=KEY, max_retries=0, _strict_response_validation=True
        ) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(20)))

    assert asyncio.run(scenario()) == ["the wheel turns"] * 20
