"""LangChain's ChatOpenAI on the embedded model: answers, streams, and errors that say what to do."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI

from support_serving import Serving

QUESTION = [("system", "You are a helpful assistant."), ("human", "What is the capital of Japan?")]


def chat_model(served: Serving, **changes: Any) -> ChatOpenAI:
    settings: dict[str, Any] = {
        "model": "smollm2",
        "base_url": f"{served.url}/v1",
        "api_key": "none",
        "temperature": 0,
        "max_tokens": 40,
        "max_retries": 0,
    }
    return ChatOpenAI(**{**settings, **changes})


def test_a_question_is_answered_with_metadata(served: Serving) -> None:
    answer = chat_model(served).invoke(QUESTION)
    assert "Tokyo" in answer.content
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["model_name"] == "smollm2"
    assert answer.usage_metadata["total_tokens"] == sum(
        answer.usage_metadata[name] for name in ("input_tokens", "output_tokens")
    )


def test_a_streamed_answer_is_the_whole_one_with_its_usage(served: Serving) -> None:
    model = chat_model(served, stream_usage=True)
    pieces = list(model.stream(QUESTION))
    together = pieces[0]
    for piece in pieces[1:]:
        together += piece
    whole = model.invoke(QUESTION)
    assert len(pieces) > 2
    assert together.content == whole.content
    assert together.usage_metadata == whole.usage_metadata


def test_a_batch_is_answered_in_order(served: Serving) -> None:
    answers = chat_model(served).batch([QUESTION, [("human", "Say hello.")], QUESTION])
    assert answers[0].content == answers[2].content != answers[1].content


def test_log_probabilities_come_along(served: Serving) -> None:
    answer = chat_model(served, logprobs=True, top_logprobs=2).invoke(QUESTION)
    entries = answer.response_metadata["logprobs"]["content"]
    assert len(entries) == answer.usage_metadata["output_tokens"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)


def test_the_responses_protocol_says_the_same(served: Serving) -> None:
    plain = chat_model(served).invoke(QUESTION)
    answer = chat_model(served, use_responses_api=True, output_version="responses/v1").invoke(QUESTION)
    assert answer.text == plain.content
    assert answer.usage_metadata["output_tokens"] == plain.usage_metadata["output_tokens"]


def test_too_long_a_prompt_is_known_for_what_it_is(served: Serving) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat_model(served).invoke([("human", "word " * 3000)])
    # What LangChain turns into its own error, where it knows it; else the client's own with the same words.
    assert "context_length_exceeded" in str(caught.value)
    assert type(caught.value).__name__ == "OpenAIContextOverflowError"


def test_an_unknown_model_is_told(served: Serving) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        chat_model(served, model="gpt").invoke(QUESTION)
