"""Chat completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from noria.core.plan import TokenLogprobs
from noria.parsers.parts import CallArguments, Content, Part, Reasoning
from noria.server.encoders.reply import KEEP_ALIVE_COMMENT, ChoiceResult, Reply, ToolCall, members_of
from noria.server.errors import ApiError
from noria.server.turn import ChoiceEvent

_CHUNK = "chat.completion.chunk"
_PLAIN_REST = b',"logprobs":null,"finish_reason":null'
_ROLE = b'{"role":"assistant","content":""}'


@dataclass(frozen=True, slots=True)
class ChatWords:
    """What a reply calls things.

    reasoning: the fields that hold reasoning. finish: why a choice ended that stopped after calls.
    """

    reasoning: tuple[str, ...] = ("reasoning", "reasoning_content")
    finish: str = "tool_calls"


class ChatEncoder:
    """echoed: the text of the message that is continued, which then comes first in every choice.

    prompt_text: the chat as the model got it, where the reply tells it.
    """

    keep_alive = KEEP_ALIVE_COMMENT

    def __init__(
        self,
        reply: Reply,
        echoed: str = "",
        words: ChatWords = ChatWords(),
        prompt_text: str | None = None,
    ) -> None:
        self._reply = reply
        self._options = reply.options
        self._echoed = echoed
        self._words = words
        self._prompt_text = prompt_text
        self._templates = reply.templates(_CHUNK, "delta")
        self._calling: set[int] = set()  # streams: choices that have made calls
        self._customs: set[tuple[int, int]] = set()  # and which of those are of custom tools

    def begin(self) -> bytes:
        usage = self._reply.chunk_usage()
        first = usage | self._prompt()
        frames = []
        for template in self._templates:
            frames.append(template.chunk(_ROLE, _PLAIN_REST, members_of(first)))
            if self._echoed:
                frames.append(template.chunk(_content(self._echoed), _PLAIN_REST, members_of(usage)))
        return b"".join(frames)

    def encode(self, event: ChoiceEvent) -> bytes:
        if self._reply.is_silent(event):
            return b""
        payloads = [self._payload(event.index, part) for part in event.parts]
        last = payloads.pop() if payloads else b"{}" if event.finish is not None else _content("")
        template, members = self._templates[event.index], members_of(self._reply.chunk_usage())
        first = [template.chunk(payload, _PLAIN_REST, members) for payload in payloads]
        return b"".join((*first, template.chunk(last, self._rest(event), members)))

    def end(self) -> bytes:
        return self._reply.closing(_CHUNK)

    def fail(self, error: ApiError) -> bytes:
        return self._reply.failing(error)

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        body = self._reply.body("chat.completion", [self._choice(choice) for choice in choices])
        body |= {"prompt_logprobs": None, "kv_transfer_params": None}
        if self._options.prompt_logprobs:
            body["prompt_logprobs"] = self._reply.prompt_logprobs(choices[0])
        return body | self._prompt()

    def _prompt(self) -> dict[str, Any]:
        """Of the prompt, what is asked for."""
        told: dict[str, Any] = {}
        if self._options.token_ids:
            told["prompt_token_ids"] = self._reply.turn.request.prompts[0]
        if self._prompt_text is not None:
            told["prompt_text"] = self._prompt_text
        return told

    def _choice(self, result: ChoiceResult) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": result.index,
            "message": self._message(result),
            "logprobs": None,
            "finish_reason": self._finish(result.finish, bool(result.calls)),
            "stop_reason": result.stop_reason,
        }
        if self._options.logprobs:
            choice["logprobs"] = self._logprobs(result.logprobs)
        if self._options.token_ids:
            choice["token_ids"] = result.token_ids
        return choice

    def _message(self, result: ChoiceResult) -> dict[str, Any]:
        text, calls, reasoning = self._echoed + result.text, result.calls, result.reasoning
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text or None
            message["tool_calls"] = [_call(call) for call in calls]
        if reasoning:
            message |= dict.fromkeys(self._words.reasoning, reasoning)
        return message

    def _payload(self, index: int, part: Part) -> bytes:
        if isinstance(part, Content):
            return _content(part.text)
        if isinstance(part, Reasoning):
            return orjson.dumps(dict.fromkeys(self._words.reasoning, part.text))
        if isinstance(part, CallArguments):
            is_custom = (index, part.index) in self._customs
            more = {"custom": {"input": part.text}} if is_custom else {"function": {"arguments": part.text}}
            return orjson.dumps({"tool_calls": [{"index": part.index, **more}]})
        self._calling.add(index)
        if part.is_custom:
            self._customs.add((index, part.index))
        call = ToolCall(part.id, part.name, "", part.is_custom)
        return orjson.dumps({"tool_calls": [{"index": part.index, **_call(call)}]})

    def _finish(self, finish: str | None, has_calls: bool) -> str | None:
        return self._words.finish if has_calls and finish == "stop" else finish

    def _rest(self, event: ChoiceEvent) -> bytes:
        if self._reply.is_text_alone(event):
            return _PLAIN_REST
        logprobs = None
        if self._options.logprobs and event.logprobs:
            logprobs = self._logprobs(event.logprobs)
        finish = self._finish(event.finish, event.index in self._calling)
        rest: dict[str, Any] = {"logprobs": logprobs, "finish_reason": finish}
        if event.finish is not None:
            rest["stop_reason"] = event.stop_reason
        if self._options.token_ids:
            rest["token_ids"] = event.token_ids
        return members_of(rest)

    def _logprobs(self, logprobs: Sequence[TokenLogprobs]) -> dict[str, Any]:
        return {"content": [self._reply.names.chat_entry(item) for item in logprobs]}


def _call(call: ToolCall) -> dict[str, Any]:
    if call.is_custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {
        "id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}
    }  # fmt: skip


def _content(text: str) -> bytes:
    return b'{"content":' + orjson.dumps(text) + b"}"
