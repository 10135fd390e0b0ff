"""A plain HTTP client of a running server, and what its streams say when they are put together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from support_serving import Serving

PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions"}


class Api:
    """Of a server that serves "test". Requests are greedy unless they say otherwise."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.client = httpx.Client(base_url=serving.url, timeout=60)

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return self.client.post(path, json=fields)

    def ask(self, endpoint: str, prompt: Any, **fields: Any) -> dict[str, Any]:
        """The whole answer to a text: as a prompt, or as what a user says."""
        answer = self.post(PATHS[endpoint], **asked(endpoint, prompt, **fields))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stream(self, endpoint: str, prompt: Any, **fields: Any) -> list[dict[str, Any]]:
        """The chunks of the streamed answer."""
        body = asked(endpoint, prompt, stream=True, **fields)
        answer = self.post(PATHS[endpoint], **body)
        assert answer.status_code == 200, answer.text
        *data, done, rest = answer.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(line.removeprefix("data: ")) for line in data if not line.startswith(":")]

    @contextmanager
    def streaming(self, endpoint: str, prompt: Any, **fields: Any) -> Iterator[Iterator[str]]:
        """The lines of a stream, as they come."""
        body = asked(endpoint, prompt, stream=True, **fields)
        with self.client.stream("POST", PATHS[endpoint], json=body) as answer:
            assert answer.status_code == 200
            yield (line for line in answer.iter_lines() if line)

    def tokens(self, text: str) -> list[int]:
        return self.post("/tokenize", prompt=text, add_special_tokens=False).json()["tokens"]

    def text(self, tokens: list[int]) -> str:
        return self.post("/detokenize", tokens=tokens).json()["prompt"]

    def metric(self, name: str, *labels: str) -> float:
        """The value of the only series of this name with these labels, as in `reason="abort"`."""
        [line] = [
            line
            for line in self.client.get("/metrics").text.splitlines()
            if line.startswith(f"{name}{{") and all(label in line for label in labels)
        ]
        return float(line.rpartition(" ")[2])


def asked(endpoint: str, prompt: Any, **fields: Any) -> dict[str, Any]:
    content = (
        {"prompt": prompt} if endpoint == "text" else {"messages": [{"role": "user", "content": prompt}]}
    )
    return {"model": "test", "temperature": 0, **content, **fields}


def text_of(choice: dict[str, Any]) -> str:
    """What a choice, or a chunk of one, says."""
    said = choice.get("text")
    if said is None:
        said = choice.get("message", choice.get("delta", {})).get("content")
    return said or ""


def joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of a choice over all its chunks."""
    return "".join(
        text_of(choice) for chunk in chunks for choice in chunk["choices"] if choice["index"] == index
    )


def finish_of(chunks: list[dict[str, Any]], index: int = 0) -> tuple[str, Any]:
    """(finish reason, stop reason) of a choice, which has one."""
    [last] = [
        choice
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["index"] == index and choice["finish_reason"] is not None
    ]
    return last["finish_reason"], last.get("stop_reason")
