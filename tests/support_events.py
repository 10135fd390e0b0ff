"""Streams of named events, as the Responses and Messages protocols have them."""

from __future__ import annotations

import json
from typing import Any

import httpx


def named_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of each event of a whole stream; asserts that each is named as its data says."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    return [event_of(frame) for frame in frames if not frame.startswith(":")]


def event_of(frame: str) -> dict[str, Any]:
    name, data = frame.split("\n")
    event = json.loads(data.removeprefix("data: "))
    assert name == f"event: {event['type']}"
    return event
