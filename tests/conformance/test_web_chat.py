"""What a chat page such as Open WebUI does: it asks for the models, streams an answer, and a button stops it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support_serving import Serving

QUESTION = [{"role": "user", "content": "Count as far as you can."}]


@pytest.fixture(scope="module")
def page(served: Serving) -> Iterator[httpx.Client]:
    headers = {"Authorization": "Bearer 0p3n-w3bu!"}
    with httpx.Client(base_url=f"{served.url}/v1", headers=headers, timeout=60) as client:
        yield client


def deltas(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                yield choice["delta"]


def test_the_first_model_of_the_list_answers_a_streamed_chat(page: httpx.Client) -> None:
    models = page.get("/models").json()["data"]
    asked = {
        "model": models[0]["id"],
        "messages": [{"role": "user", "content": "What is the capital of Japan?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 40,
    }
    with page.stream("POST", "/chat/completions", json=asked) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        text = "".join(delta.get("content") or "" for delta in deltas(response))
    assert "Tokyo" in text


def test_the_stop_button_ends_the_work_and_the_next_question_is_answered(
    served: Serving, page: httpx.Client
) -> None:
    asked = {"model": "smollm2", "messages": QUESTION, "stream": True, "max_tokens": 1900, "ignore_eos": True}
    with page.stream("POST", "/chat/completions", json=asked) as response:
        for number, _ in enumerate(deltas(response)):
            if number == 5:
                break
    served.check_clean()
    answer = page.post("/chat/completions", json={**asked, "stream": False, "max_tokens": 4})
    assert answer.json()["usage"]["completion_tokens"] == 4


def test_the_pages_parallel_calls_for_a_title_do_not_change_the_answer(
    served: Serving, page: httpx.Client
) -> None:
    asked = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 24}
    alone = page.post("/chat/completions", json=asked).json()["choices"][0]["message"]["content"]
    title = {**asked, "messages": [{"role": "user", "content": "Give this chat a title."}]}
    with page.stream("POST", "/chat/completions", json={**asked, "stream": True}) as response:
        pieces = deltas(response)
        first = next(pieces).get("content") or ""
        assert page.post("/chat/completions", json=title).status_code == 200
        text = first + "".join(delta.get("content") or "" for delta in pieces)
    assert text == alone
