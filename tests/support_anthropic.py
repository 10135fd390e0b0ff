"""Requests in the Messages protocol, and what comes back."""

from __future__ import annotations

from typing import Any

import httpx

from support_server import Server, tokenizer

ASKED = {"model": "wheel", "max_tokens": 20, "messages": [{"role": "user", "content": "turn"}]}
HEADERS = {"anthropic-version": "2023-06-01"}


def message(server: Server, path: str = "/v1/messages", **changes: Any) -> httpx.Response:
    return server.client.post(path, json={**ASKED, **changes}, headers=HEADERS)


def prompt_of(server: Server) -> str:
    return tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False)


def turns(*messages: tuple[str, str]) -> str:
    return "".join(f"<|start|>{role}\n{text}<|end|>\n" for role, text in messages) + "<|start|>assistant\n"


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, kind and message of a refusal in this protocol's shape."""
    body = answer.json()
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    return answer.status_code, body["error"]["type"], body["error"]["message"]


def block(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}
