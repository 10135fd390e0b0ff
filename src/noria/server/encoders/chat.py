"""Chat completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from noria.core.plan import TokenLogprobs
from noria.server.encoders.reply import KEEP_ALIVE_COMMENT, ChoiceResult, Reply, members_of
from noria.server.errors import ApiError
from noria.server.turn import ChoiceEvent

_CHUNK = "chat.completion.chunk"
_PLAIN_REST = b',"logprobs":null,"finish_reason":null'
_ROLE = b'{"role":"assistant","content":""}'


class ChatEncoder:
    """echoed: the text of the message that is continued, which then comes first in every choice."""

    keep_alive = KEEP_ALIVE_COMMENT

    def __init__(self, reply: Reply, echoed: str = "") -> None:
        self._reply = reply
        self._options = reply.options
        self._echoed = echoed
        self._templates = reply.templates(_CHUNK, "delta")

    def begin(self) -> bytes:
        usage = self._reply.chunk_usage()
        first = dict(usage)
        if self._options.token_ids:
            first["prompt_token_ids"] = self._reply.turn.request.prompts[0]
        frames = []
        for template in self._templates:
            frames.append(template.chunk(_ROLE, _PLAIN_REST, members_of(first)))
            if self._echoed:
                frames.append(template.chunk(_content(self._echoed), _PLAIN_REST, members_of(usage)))
        return b"".join(frames)

    def encode(self, event: ChoiceEvent) -> bytes:
        if self._reply.is_silent(event):
            return b""
        payload = b"{}" if event.finish is not None and not event.text else _content(event.text)
        members = members_of(self._reply.chunk_usage())
        return self._templates[event.index].chunk(payload, self._rest(event), members)

    def end(self) -> bytes:
        return self._reply.closing(_CHUNK)

    def fail(self, error: ApiError) -> bytes:
        return self._reply.failing(error)

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        body = self._reply.body("chat.completion", [self._choice(choice) for choice in choices])
        body |= {"prompt_logprobs": None, "kv_transfer_params": None}
        if self._options.prompt_logprobs:
            body["prompt_logprobs"] = self._reply.prompt_logprobs(choices[0])
        if self._options.token_ids:
            body["prompt_token_ids"] = self._reply.turn.request.prompts[0]
        return body

    def _choice(self, result: ChoiceResult) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": result.index,
            "message": {"role": "assistant", "content": self._echoed + result.text, "refusal": None},
            "logprobs": None,
            "finish_reason": result.finish,
            "stop_reason": result.stop_reason,
        }
        if self._options.logprobs:
            choice["logprobs"] = self._logprobs(result.logprobs)
        if self._options.token_ids:
            choice["token_ids"] = result.token_ids
        return choice

    def _rest(self, event: ChoiceEvent) -> bytes:
        if self._reply.is_text_alone(event):
            return _PLAIN_REST
        logprobs = None
        if self._options.logprobs and event.logprobs:
            logprobs = self._logprobs(event.logprobs)
        rest: dict[str, Any] = {"logprobs": logprobs, "finish_reason": event.finish}
        if event.finish is not None:
            rest["stop_reason"] = event.stop_reason
        if self._options.token_ids:
            rest["token_ids"] = event.token_ids
        return members_of(rest)

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        return {"content": [self._reply.names.chat_entry(item) for item in logprobs]}


def _content(text: str) -> bytes:
    return b'{"content":' + orjson.dumps(text) + b"}"
