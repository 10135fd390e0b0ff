"""A stream that breaks off, as the stock clients see it: an error of theirs, or the failed response that they parse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest
from support_server import FakeEngine, Server, serving, tokenizer

QUESTION: Any = [{"role": "user", "content": "turn"}]


def breaks_off(request: GenerateRequest) -> list[Delta]:
    ids = tokenizer().encode("the wheel", add_special_tokens=False)
    return [Delta(request.request_id, tuple(ids)), Delta(request.request_id, finish=FinishReason.LOST)]


@pytest.fixture(scope="module")
def broken() -> Iterator[Server]:
    """A server whose engine dies in the middle of every answer."""
    with serving(FakeEngine(breaks_off)) as server:
        yield server


@pytest.fixture(scope="module")
def client(broken: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{broken.url}/v1", api_key="x", max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


def test_a_chat_raises_after_what_was_said(client: openai.OpenAI) -> None:
    said = ""
    with pytest.raises(openai.APIError, match="The engine failed"):
        for chunk in client.chat.completions.create(model="wheel", messages=QUESTION, stream=True):
            said += chunk.choices[0].delta.content or ""
    assert said.startswith("the")


def test_a_response_ends_as_a_failed_one(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="wheel", input="turn", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert (last.response.status, last.response.error.code) == ("failed", "server_error")
    assert "The engine failed" in last.response.error.message
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_message_raises_after_what_was_said(broken: Server) -> None:
    said = ""
    with anthropic.Anthropic(
        base_url=broken.url, api_key="x", max_retries=0, _strict_response_validation=True
    ) as messages:
        stream = messages.messages.create(model="wheel", max_tokens=10, messages=QUESTION, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="The engine failed") as caught:
            for event in stream:
                said += event.delta.text if event.type == "content_block_delta" else ""
    assert said.startswith("the")
    assert caught.value.body["error"]["type"] == "overloaded_error"


def test_whole_answers_raise_the_error_to_try_again_by(client: openai.OpenAI) -> None:
    for ask in (
        lambda: client.chat.completions.create(model="wheel", messages=QUESTION),
        lambda: client.completions.create(model="wheel", prompt="turn"),
        lambda: client.responses.create(model="wheel", input="turn"),
    ):
        with pytest.raises(openai.InternalServerError) as caught:
            ask()
        assert caught.value.status_code == 503
        assert int(caught.value.response.headers["retry-after"]) > 0
