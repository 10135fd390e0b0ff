"""Chat completions, whole and streamed."""

from __future__ import annotations

from typing import Any

import orjson

from noria.server.encoders.reply import (
    DONE_FRAME,
    ChoiceResult,
    ChunkTemplate,
    ReplyHead,
    ReplyOptions,
    frame,
    members_of,
    usage_object,
)
from noria.server.encoders.token_names import TokenNames
from noria.server.turn import ChoiceEvent, Turn

_PLAIN_REST = b',"logprobs":null,"finish_reason":null'
_ROLE = b'{"role":"assistant","content":""}'


class ChatEncoder:
    """echoed: the text of the message that is continued, which then comes first in every choice."""

    def __init__(
        self, turn: Turn, head: ReplyHead, options: ReplyOptions, names: TokenNames, echoed: str = ""
    ) -> None:
        self._turn = turn
        self._head = head
        self._options = options
        self._names = names
        self._echoed = echoed
        self._templates = [
            ChunkTemplate(head, "chat.completion.chunk", index, "delta") for index in range(turn.num_choices)
        ]

    def begin(self) -> bytes:
        usage = self._usage_member()
        first = dict(usage)
        if self._options.token_ids:
            first["prompt_token_ids"] = self._turn.request.prompts[0]
        frames = []
        for template in self._templates:
            frames.append(template.chunk(_ROLE, _PLAIN_REST, members_of(first)))
            if self._echoed:
                frames.append(template.chunk(_content(self._echoed), _PLAIN_REST, members_of(usage)))
        return b"".join(frames)

    def encode(self, event: ChoiceEvent) -> bytes:
        tells_tokens = event.token_ids and (self._options.logprobs or self._options.token_ids)
        if not event.text and event.finish is None and not tells_tokens:
            return b""
        payload = b"{}" if event.finish is not None and not event.text else _content(event.text)
        members = members_of(self._usage_member())
        return self._templates[event.index].chunk(payload, self._rest(event), members)

    def end(self) -> bytes:
        if not self._options.include_usage:
            return DONE_FRAME
        head = self._head
        last = {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
            "choices": [],
            "usage": self._usage(),
        }
        return frame(last) + DONE_FRAME

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        head = self._head
        reply: dict[str, Any] = {
            "id": head.id,
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "choices": [self._choice(choice) for choice in choices],
            "usage": self._usage(),
            "system_fingerprint": None,
            "service_tier": None,
            "prompt_logprobs": None,
            "kv_transfer_params": None,
        }
        if self._options.prompt_logprobs:
            entries = [self._names.prompt_entry(item) for item in choices[0].prompt_logprobs]
            reply["prompt_logprobs"] = [None, *entries]
        if self._options.token_ids:
            reply["prompt_token_ids"] = self._turn.request.prompts[0]
        return reply

    def _choice(self, result: ChoiceResult) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": result.index,
            "message": {"role": "assistant", "content": self._echoed + result.text, "refusal": None},
            "logprobs": None,
            "finish_reason": result.finish,
            "stop_reason": result.stop_reason,
        }
        if self._options.logprobs:
            choice["logprobs"] = {"content": [self._names.chat_entry(item) for item in result.logprobs]}
        if self._options.token_ids:
            choice["token_ids"] = result.token_ids
        return choice

    def _rest(self, event: ChoiceEvent) -> bytes:
        if event.finish is None and not self._options.logprobs and not self._options.token_ids:
            return _PLAIN_REST
        logprobs = None
        if self._options.logprobs and event.logprobs:
            logprobs = {"content": [self._names.chat_entry(item) for item in event.logprobs]}
        rest: dict[str, Any] = {"logprobs": logprobs, "finish_reason": event.finish}
        if event.finish is not None:
            rest["stop_reason"] = event.stop_reason
        if self._options.token_ids:
            rest["token_ids"] = event.token_ids
        return members_of(rest)

    def _usage(self) -> dict[str, Any]:
        return usage_object(self._turn.usage(), self._options.cached_tokens)

    def _usage_member(self) -> dict[str, Any]:
        return {"usage": self._usage()} if self._options.continuous_usage else {}


def _content(text: str) -> bytes:
    return b'{"content":' + orjson.dumps(text) + b"}"
