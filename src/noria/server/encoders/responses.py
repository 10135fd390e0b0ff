"""The Responses protocol, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from noria.core.plan import TokenLogprobs
from noria.server.encoders.reply import KEEP_ALIVE_COMMENT, ChoiceResult, Reply, named_frame
from noria.server.errors import ApiError
from noria.server.turn import ChoiceEvent

_DELTA = "response.output_text.delta"
_PLACE = {"output_index": 0, "content_index": 0}  # of the text among a response's items and their parts


class ResponsesEncoder:
    """settings: what a response tells of the request that made it.

    A response holds one item, the message. Every event of a stream has a number, from 0 on:

        created, in_progress, output_item.added, content_part.added, output_text.delta ...,
        output_text.done, content_part.done, output_item.done, completed | incomplete

    or `failed` wherever it breaks off.
    """

    keep_alive = KEEP_ALIVE_COMMENT

    def __init__(self, reply: Reply, settings: Mapping[str, Any]) -> None:
        self._reply = reply
        self._settings = settings
        self._item_id = f"msg_{reply.head.id.removeprefix('resp_')}"
        # Streams:
        self._said = ChoiceResult(0)
        self._is_open = False  # the item and its part have been announced
        self._num_events = 0
        about = orjson.dumps({"type": _DELTA, "item_id": self._item_id, **_PLACE})
        self._delta_opening = b"event: %s\ndata: %s" % (_DELTA.encode(), about[:-1])

    def begin(self) -> bytes:
        response = self._response("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def encode(self, event: ChoiceEvent) -> bytes:
        self._said.add(event)
        logprobs = self._logprobs(event.logprobs)
        if not event.text and not logprobs:
            return b""
        opening = self._open()
        number = self._number()
        delta = b',"sequence_number":%d,"logprobs":%s,"delta":%s}\n\n' % (
            number,
            orjson.dumps(logprobs),
            orjson.dumps(event.text),
        )
        return opening + self._delta_opening + delta

    def end(self) -> bytes:
        opening = self._open()
        response = self._ended(self._said)
        [item] = response["output"]
        [part] = item["content"]
        about = {"item_id": self._item_id, **_PLACE}
        return b"".join((
            opening,
            self._event("response.output_text.done", **about, text=part["text"], logprobs=part["logprobs"]),
            self._event("response.content_part.done", **about, part=part),
            self._event("response.output_item.done", output_index=0, item=item),
            self._event(f"response.{response['status']}", response=response),
        ))  # fmt: skip

    def fail(self, error: ApiError) -> bytes:
        output = [self._item("incomplete", [self._part(self._said)])] if self._is_open else []
        response = self._response("failed", output)
        response["error"] = {"code": _error_code(error.status), "message": error.message}
        return self._event("response.failed", response=response)

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        return self._ended(choices[0])

    def _open(self) -> bytes:
        """Announces what text goes into, before its first piece."""
        if self._is_open:
            return b""
        self._is_open = True
        part = self._part(ChoiceResult(0))
        added = self._event("response.output_item.added", output_index=0, item=self._item("in_progress", []))
        return added + self._event("response.content_part.added", item_id=self._item_id, **_PLACE, part=part)

    def _ended(self, said: ChoiceResult) -> dict[str, Any]:
        status = "completed" if said.finish == "stop" else "incomplete"
        response = self._response(status, [self._item(status, [self._part(said)])])
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

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "type": "message",
            "id": self._item_id,
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _part(self, said: ChoiceResult) -> dict[str, Any]:
        logprobs = self._logprobs(said.logprobs)
        return {"type": "output_text", "text": said.text, "annotations": [], "logprobs": logprobs}

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
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.num_prompt + usage.num_output,
        }

    def _event(self, kind: str, **members: Any) -> bytes:
        return named_frame(kind, {"sequence_number": self._number(), **members})

    def _number(self) -> int:
        self._num_events += 1
        return self._num_events - 1


def _error_code(status: int) -> str:
    """Of the protocol's few codes the one nearest to an HTTP status."""
    if status == 429:
        return "rate_limit_exceeded"
    return "invalid_prompt" if status == 400 else "server_error"
