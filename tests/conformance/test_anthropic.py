"""The stock Anthropic client with its strict validation, on the embedded model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from support_server import FakeEngine, serving
from support_serving import Serving

QUESTION: Any = [{"role": "user", "content": "What is the capital of Japan?"}]
# The client has no parameter for the temperature any more.
ASKED: dict[str, Any] = {
    "model": "smollm2",
    "max_tokens": 40,
    "messages": QUESTION,
    "extra_body": {"temperature": 0},
}


def settings(url: str) -> dict[str, Any]:
    return {"base_url": url, "api_key": "none", "max_retries": 0, "_strict_response_validation": True}


@pytest.fixture(scope="module")
def client(served: Serving) -> Iterator[Anthropic]:
    with Anthropic(**settings(served.url)) as made:
        yield made


def test_a_message_is_created(client: Anthropic) -> None:
    message = client.messages.create(**ASKED, system="Answer briefly.")
    [block] = message.content
    assert "Tokyo" in block.text
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "end_turn", None)
    assert message._request_id is not None
    assert message.id == f"msg_{message._request_id}"


def test_a_message_says_what_a_chat_of_the_same_words_says(served: Serving, client: Anthropic) -> None:
    import httpx

    chat = {"messages": QUESTION, "temperature": 0, "max_tokens": 40}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=chat, timeout=60).json()
    message = client.messages.create(**ASKED)
    assert message.content[0].text == answer["choices"][0]["message"]["content"]
    assert message.usage.input_tokens == answer["usage"]["prompt_tokens"]
    assert message.usage.output_tokens == answer["usage"]["completion_tokens"]


def test_a_message_is_streamed(client: Anthropic) -> None:
    whole = client.messages.create(**ASKED)
    kinds, text = [], ""
    for event in client.messages.create(**ASKED, stream=True):
        kinds.append(event.type)
        if event.type == "content_block_delta":
            text += event.delta.text
    assert text == whole.content[0].text
    assert (kinds[0], kinds[-2], kinds[-1]) == ("message_start", "message_delta", "message_stop")


def test_the_stream_helper_puts_the_message_together(client: Anthropic) -> None:
    whole = client.messages.create(**ASKED)
    with client.messages.stream(**ASKED) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens == whole.usage.input_tokens


@pytest.mark.parametrize(
    ("fields", "ending"),
    [({"max_tokens": 2}, ("max_tokens", None)), ({"stop_sequences": ["Tokyo"]}, ("stop_sequence", "Tokyo"))],
)
def test_why_a_message_ended_is_told(
    client: Anthropic, fields: dict[str, Any], ending: tuple[str, str | None]
) -> None:
    message = client.messages.create(**{**ASKED, **fields})
    assert (message.stop_reason, message.stop_sequence) == ending


def test_an_answer_that_is_begun_is_gone_on_with(client: Anthropic) -> None:
    begun = [*QUESTION, {"role": "assistant", "content": "The capital of Japan is"}]
    message = client.messages.create(**{**ASKED, "messages": begun})
    assert message.content[0].text.startswith(" Tokyo")


def test_tokens_are_counted_as_a_message_uses_them(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="smollm2", messages=QUESTION, system="Answer briefly.")
    message = client.messages.create(**{**ASKED, "max_tokens": 1}, system="Answer briefly.")
    assert counted.input_tokens == message.usage.input_tokens


def test_the_beta_client_is_answered_too(client: Anthropic) -> None:
    message = client.beta.messages.create(**ASKED, betas=["context-1m-2025-08-07"])
    assert "Tokyo" in message.content[0].text


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"model": "gpt"}, anthropic.NotFoundError, "does not exist"),
        ({"max_tokens": -1}, anthropic.BadRequestError, "max_tokens"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, anthropic.BadRequestError, "too long"),
        (
            {"tools": [{"name": "web_search", "type": "web_search_20250305"}]},
            anthropic.BadRequestError,
            "web_search",
        ),
    ],
)
def test_a_refused_message_raises_the_clients_own_error(
    client: Anthropic, fields: dict[str, Any], error: type[anthropic.APIStatusError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        client.messages.create(**{**ASKED, **fields})
    assert caught.value.request_id is not None
    assert caught.value.body["type"] == "error"


def test_a_key_is_taken_either_way_and_a_wrong_one_told() -> None:
    asked: Any = {"model": "wheel", "max_tokens": 10, "messages": QUESTION}
    with serving(FakeEngine(), api_key=("right",)) as server:
        common = {**settings(server.url), "api_key": None}
        with Anthropic(**{**common, "api_key": "right"}) as keyed:
            assert keyed.messages.create(**asked).content
        with Anthropic(**common, auth_token="right") as bearer:
            assert bearer.messages.create(**asked).content
        with (
            Anthropic(**{**common, "api_key": "wrong"}) as other,
            pytest.raises(anthropic.AuthenticationError),
        ):
            other.messages.create(**asked)


def test_a_draining_server_is_one_to_try_again_later() -> None:
    with serving(FakeEngine()) as server, Anthropic(**settings(server.url)) as client:
        server.app.state.switchboard.gate.drain()
        with pytest.raises(anthropic.InternalServerError) as caught:
            client.messages.create(model="wheel", max_tokens=10, messages=QUESTION)
        assert caught.value.status_code == 503
        assert caught.value.body["error"]["type"] == "overloaded_error"


def test_a_stream_that_is_closed_ends_its_request(served: Serving, client: Anthropic) -> None:
    asked = {**ASKED, "max_tokens": 1900, "extra_body": {"ignore_eos": True}}
    with client.messages.create(**asked, stream=True) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                break
    served.check_clean()


def test_the_asynchronous_client_runs_many_at_once(served: Serving) -> None:
    async def whole(client: AsyncAnthropic) -> str:
        return (await client.messages.create(**ASKED)).content[0].text

    async def streamed(client: AsyncAnthropic) -> str:
        async with client.messages.stream(**ASKED) as stream:
            return "".join([text async for text in stream.text_stream])

    async def scenario() -> list[str]:
        async with AsyncAnthropic(**settings(served.url)) as client:
            return await asyncio.gather(*(kind(client) for kind in (whole, streamed) for _ in range(3)))

    texts = asyncio.run(scenario())
    assert "Tokyo" in texts[0]
    assert set(texts) == {texts[0]}
