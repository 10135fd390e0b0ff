"""The Messages protocol, whole and streamed."""

from __future__ import annotations

from typing import Any

import orjson

from noria.server.encoders.reply import ChoiceResult, ReplyHead, named_frame
from noria.server.errors import ApiError, anthropic_error
from noria.server.turn import ChoiceEvent, Turn

_DELTA_OPENING = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
)


class AnthropicEncoder:
    """tells_cached: usage parts what came from the prefix cache from the rest of the prompt.

    A message has one block, of text, or none if the model said nothing. A stream:

        message_start, content_block_start, content_block_delta ..., content_block_stop,
        message_delta, message_stop

    or `error` wherever it breaks off.
    """

    keep_alive = named_frame("ping", {})

    def __init__(self, turn: Turn, head: ReplyHead, tells_cached: bool) -> None:
        self._turn = turn
        self._head = head
        self._tells_cached = tells_cached
        # Streams:
        self._is_open = False  # the block has begun
        self._ending = _ending(ChoiceResult(0))

    def begin(self) -> bytes:
        message = self._message([], self._ending)
        return named_frame("message_start", {"message": message})

    def encode(self, event: ChoiceEvent) -> bytes:
        if event.finish is not None:
            self._ending = _ending(event)
        if not event.text:
            return b""
        delta = _DELTA_OPENING + orjson.dumps(event.text) + b"}}\n\n"
        if self._is_open:
            return delta
        self._is_open = True
        return named_frame("content_block_start", {"index": 0, "content_block": _block("")}) + delta

    def end(self) -> bytes:
        stop = named_frame("content_block_stop", {"index": 0}) if self._is_open else b""
        delta = named_frame("message_delta", {"delta": self._ending, "usage": self._usage()})
        return stop + delta + named_frame("message_stop", {})

    def fail(self, error: ApiError) -> bytes:
        return named_frame("error", anthropic_error(error))

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        [said] = choices
        content = [_block(said.text)] if said.text else []
        return self._message(content, _ending(said))

    def _message(self, content: list[dict[str, Any]], ending: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": content,
            **ending,
            "usage": {
                **self._usage(),
                "cache_creation": None,
                "inference_geo": None,
                "service_tier": None,
            },
        }

    def _usage(self) -> dict[str, int | None]:
        # The protocol wants every member, and counts what was cached apart.
        usage = self._turn.usage()
        num_cached = usage.num_cached if self._tells_cached else 0
        return {
            "input_tokens": usage.num_prompt - num_cached,
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": num_cached if self._tells_cached else None,
            "output_tokens": usage.num_output,
            "output_tokens_details": None,
            "server_tool_use": None,
        }


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def _ending(said: ChoiceEvent | ChoiceResult) -> dict[str, Any]:
    """Why the message ended, if it has."""
    reason, sequence = None, None
    if said.finish == "length":
        reason = "max_tokens"
    elif said.finish == "abort":
        reason = "pause_turn"  # of what clients know, the one that promises no end
    elif isinstance(said.stop_reason, str):
        reason, sequence = "stop_sequence", said.stop_reason
    elif said.finish is not None:
        reason = "end_turn"
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None, "container": None}
