"""The Responses protocol, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from noria.core.plan import TokenLogprobs
from noria.parsers.parts import CallBegin, Content, Part
from noria.server.encoders.blocks import blocks_of
from noria.server.encoders.reply import KEEP_ALIVE_COMMENT, ChoiceResult, Reply, named_frame
from noria.server.encoders.response_items import Event, Item, begin_of
from noria.server.errors import ApiError
from noria.server.turn import ChoiceEvent


class ResponsesEncoder:
    """settings: what a response tells of the request that made it. seals_reasoning: see Item.

    A response holds an item for each stretch of reasoning or text and each call; an empty message if there is none.
    Every event of a stream has a number, from 0 on:

        created, in_progress,
        (output_item.added, [content_part.added,] *.delta ..., *.done, [content_part.done,] output_item.done) ...,
        completed | incomplete

    or `failed` wherever it breaks off.
    """

    keep_alive = KEEP_ALIVE_COMMENT

    def __init__(self, reply: Reply, settings: Mapping[str, Any], seals_reasoning: bool = False) -> None:
        self._reply = reply
        self._settings = settings
        self._seals = seals_reasoning
        # Streams:
        self._said = ChoiceResult(0)
        self._items: list[Item] = []  # the last one is open until the next begins
        self._num_events = 0

    def begin(self) -> bytes:
        response = self._response("in_progress", [])
        return self._event("created", response=response) + self._event("in_progress", response=response)

    def encode(self, event: ChoiceEvent) -> bytes:
        num_told = len(self._said.text_logprobs)
        self._said.add(event)
        logprobs = self._logprobs(self._said.text_logprobs[num_told:])
        frames = []
        for part in event.parts:
            takes = logprobs if isinstance(part, Content) else []
            frames.append(self._part(part, takes))
            logprobs = [] if takes else logprobs
        if logprobs:  # of tokens that ended the text without adding to it
            frames.append(self._part(Content(""), logprobs))
        return b"".join(frames)

    def end(self) -> bytes:
        opening = b"" if self._items else self._open(Content(""))
        closing = self._tell(self._items[-1].closing(_status(self._said)))
        response = self._ended(self._said, self._items)
        return opening + closing + self._event(response["status"], response=response)

    def fail(self, error: ApiError) -> bytes:
        output = [item.whole("completed") for item in self._items[:-1]]
        output += [item.whole("incomplete") for item in self._items[-1:]]
        response = self._response("failed", output)
        response["error"] = {"code": _error_code(error.status), "message": error.message}
        return self._event("failed", response=response)

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        [said] = choices
        blocks = blocks_of(said.parts)
        items = [
            Item.of(block, self._item_id(block.begin, place), place, self._seals)
            for place, block in enumerate(blocks)
        ]
        items = items or [Item(Content(""), self._item_id(Content(""), 0), 0)]
        for item in [item for item in items if isinstance(item.begin, Content)][:1]:
            item.logprobs = self._logprobs(said.text_logprobs)
        return self._ended(said, items)

    def _part(self, part: Part, logprobs: list[dict[str, Any]]) -> bytes:
        opening = b"" if self._items and self._items[-1].takes(part) else self._open(part)
        if isinstance(part, CallBegin):
            return opening
        return opening + self._tell([self._items[-1].delta(part.text, logprobs)])

    def _open(self, part: Part) -> bytes:
        """Announces what the part goes into; what came before it is whole."""
        closing = self._tell(self._items[-1].closing("completed")) if self._items else b""
        place = len(self._items)
        self._items.append(Item(part, self._item_id(part, place), place, self._seals))
        return closing + self._tell(self._items[-1].opening())

    def _item_id(self, part: Part, place: int) -> str:
        name = self._reply.head.id.removeprefix("resp_")
        return f"{begin_of(part)}{name}" + (f"-{place}" if place else "")

    def _ended(self, said: ChoiceResult, items: Sequence[Item]) -> dict[str, Any]:
        status = _status(said)
        told = [item.whole("completed") for item in items[:-1]] + [items[-1].whole(status)]
        response = self._response(status, told)
        response["usage"] = self._usage()
        if status == "completed":
            response["completed_at"] = int(time.time())
        else:
            # An aborted answer has none of the reasons that clients know.
            reason = {"reason": "max_output_tokens"} if said.finish == "length" else None
            response["incomplete_details"] = reason
        return response

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        head = self._reply.head
        return {
            "id": head.id,
            "object": "response",
            "created_at": head.created,
            "completed_at": None,
            "status": status,
            "model": head.model,
            "output": output,
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **self._settings,
        }

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
        if not self._reply.options.logprobs:
            return []
        return [self._reply.names.chat_entry(item) for item in logprobs]

    def _usage(self) -> dict[str, Any]:
        # The protocol has no way to leave the details out: where they are not to be told they are 0.
        usage = self._reply.turn.usage()
        num_cached = usage.num_cached if self._reply.options.cached_tokens else 0
        return {
            "input_tokens": usage.num_prompt,
            "input_tokens_details": {"cached_tokens": num_cached, "cache_write_tokens": 0},
            "output_tokens": usage.num_output,
            "output_tokens_details": {"reasoning_tokens": usage.num_reasoning},
            "total_tokens": usage.num_prompt + usage.num_output,
        }

    def _tell(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._event(kind, **members) for kind, members in events])

    def _event(self, kind: str, **members: Any) -> bytes:
        self._num_events += 1
        return named_frame(f"response.{kind}", {"sequence_number": self._num_events - 1, **members})


def _status(said: ChoiceResult) -> str:
    return "completed" if said.finish == "stop" else "incomplete"


def _error_code(status: int) -> str:
    """Of the protocol's few codes the one nearest to an HTTP status."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if status == 400 else "server_error"
