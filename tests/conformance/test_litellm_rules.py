"""What a proxy such as LiteLLM goes by when it sorts errors: the status, how the text begins, and Retry-After."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from noria.config.errors import EngineError, OverloadError, Refusal
from support_server import CHAT, FakeEngine, Server, serving


@pytest.fixture(scope="module")
def scripted() -> Iterator[Server]:
    with serving(FakeEngine()) as server:
        yield server


def sorted_as(answer: httpx.Response) -> str:
    """The kind of error by the rules of such a proxy, which reads the text before the status."""
    text = answer.json()["error"]["message"]
    if answer.status_code == 400 and "This model's maximum context length is" in text:
        return "context window exceeded"
    kinds = {400: "bad request", 401: "authentication", 404: "not found", 429: "rate limit"}
    if answer.status_code in (429, 503):
        assert int(answer.headers["retry-after"]) > 0
    return kinds.get(answer.status_code, "unavailable" if answer.status_code == 503 else "internal")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"max_tokens": 1000}, "context window exceeded"),
        ({"messages": [{"role": "user", "content": "turn " * 100}]}, "context window exceeded"),
        ({"temperature": -1}, "bad request"),
        ({"model": "gpt"}, "not found"),
    ],
)
def test_a_refused_request_is_sorted_by_what_is_wrong_with_it(
    scripted: Server, changes: dict[str, Any], kind: str
) -> None:
    answer = scripted.chat(**changes)
    assert sorted_as(answer) == kind
    assert answer.json()["error"]["code"] == answer.status_code


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverloadError("the queue is full", Refusal.QUEUED_REQUESTS, 4), "unavailable"),
        (OverloadError("too many at once", Refusal.KEY_REQUESTS, 4), "rate limit"),
        (EngineError("the engine is dead"), "unavailable"),
    ],
)
def test_a_server_that_takes_nothing_now_says_when_to_come_again(
    scripted: Server, error: Exception, kind: str
) -> None:
    scripted.engine.submit_error = error
    try:
        assert sorted_as(scripted.chat()) == kind
    finally:
        scripted.engine.submit_error = None
    assert scripted.chat().status_code == 200


def test_a_wrong_key_is_sorted_as_one() -> None:
    with serving(FakeEngine(), api_key=("right",)) as server:
        answer = server.client.post(
            "/v1/chat/completions", json=CHAT, headers={"Authorization": "Bearer fake"}
        )
        assert sorted_as(answer) == "authentication"
