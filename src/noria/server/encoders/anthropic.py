"""The Messages protocol, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import orjson

from noria.parsers.parts import CallArguments, CallBegin, Content, Part, Reasoning
from noria.server.encoders.blocks import Block, blocks_of
from noria.server.encoders.reply import ChoiceResult, ReplyHead, named_frame
from noria.server.errors import ApiError, anthropic_error
from noria.server.turn import ChoiceEvent, Turn

# Clients send it back with the thinking that it stands under, which is taken as it is.
_SIGNATURE = "noria"


class AnthropicEncoder:
    """tells_cached: usage parts what came from the prefix cache from the rest of the prompt.

    A message has a block for each stretch of thinking or text and each call, none if the model said nothing. A stream:

        message_start, (content_block_start, content_block_delta ..., content_block_stop) ...,
        message_delta, message_stop

    or `error` wherever it breaks off.
    """

    keep_alive = named_frame("ping", {})

    def __init__(self, turn: Turn, head: ReplyHead, tells_cached: bool) -> None:
        self._turn = turn
        self._head = head
        self._tells_cached = tells_cached
        # Streams:
        self._index = -1  # of the block that is open, or was last
        self._open: Part | None = None  # of the kind that the open block is
        self._calls = False
        self._ending = _ending(ChoiceResult(0), False)

    def begin(self) -> bytes:
        message = self._message([], self._ending)
        return named_frame("message_start", {"message": message})

    def encode(self, event: ChoiceEvent) -> bytes:
        frames = b"".join([self._encode_part(part) for part in event.parts])
        if event.finish is not None:
            self._ending = _ending(event, self._calls)
        return frames

    def end(self) -> bytes:
        stop = self._close()
        delta = named_frame("message_delta", {"delta": self._ending, "usage": self._usage()})
        return stop + delta + named_frame("message_stop", {})

    def fail(self, error: ApiError) -> bytes:
        return named_frame("error", anthropic_error(error))

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        [said] = choices
        blocks = blocks_of(said.parts)
        content = [_whole_block(block) for block in blocks]
        return self._message(content, _ending(said, any(block.is_call for block in blocks)))

    def _encode_part(self, part: Part) -> bytes:
        frames = b""
        if isinstance(part, CallBegin) or not (
            isinstance(part, CallArguments) or type(part) is type(self._open)
        ):
            frames = self._close() + self._begin_block(part)
        if isinstance(part, CallBegin):
            return frames
        return frames + _delta(self._index, _delta_of(part))

    def _begin_block(self, part: Part) -> bytes:
        self._index += 1
        self._open = part
        self._calls |= isinstance(part, CallBegin)
        return named_frame("content_block_start", {"index": self._index, "content_block": _opening(part)})

    def _close(self) -> bytes:
        open_part, self._open = self._open, None
        if open_part is None:
            return b""
        signed = b""
        if isinstance(open_part, Reasoning):
            signed = _delta(self._index, {"type": "signature_delta", "signature": _SIGNATURE})
        return signed + named_frame("content_block_stop", {"index": self._index})

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


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%s}\n\n' % (
        index,
        orjson.dumps(delta),
    )


def _delta_of(part: Content | Reasoning | CallArguments) -> dict[str, Any]:
    if isinstance(part, Content):
        return {"type": "text_delta", "text": part.text}
    if isinstance(part, Reasoning):
        return {"type": "thinking_delta", "thinking": part.text}
    return {"type": "input_json_delta", "partial_json": part.text}


def _opening(part: Part) -> dict[str, Any]:
    """A block that nothing has been said in yet."""
    if isinstance(part, CallBegin):
        return _tool_use(part.id, part.name, {})
    return _thinking("", "") if isinstance(part, Reasoning) else _text("")


def _whole_block(block: Block) -> dict[str, Any]:
    if isinstance(block.begin, CallBegin):
        return _tool_use(block.begin.id, block.begin.name, _input(block.text))
    if isinstance(block.begin, Reasoning):
        return _thinking(block.text, _SIGNATURE)
    return _text(block.text)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": None}


def _thinking(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    called = {"id": call_id, "name": name, "input": arguments}
    return {"type": "tool_use", **called, "caller": {"type": "direct"}}  # by the model itself


def _input(arguments: str) -> dict[str, Any]:
    """The protocol has objects here; what the model broke off, or wrote wrongly, is told under a name of its own."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        read = None
    return read if isinstance(read, dict) else {"malformed_arguments": arguments}


def _ending(said: ChoiceEvent | ChoiceResult, has_calls: bool) -> dict[str, Any]:
    """Why the message ended, if it has."""
    reason, sequence = None, None
    if said.finish == "length":
        reason = "max_tokens"
    elif said.finish == "abort":
        reason = "pause_turn"  # of what clients know, the one that promises no end
    elif isinstance(said.stop_reason, str):
        reason, sequence = "stop_sequence", said.stop_reason
    elif said.finish is not None:
        reason = "tool_use" if has_calls else "end_turn"
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None, "container": None}
