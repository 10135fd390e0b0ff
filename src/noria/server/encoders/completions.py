"""Text completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from noria.core.plan import TokenLogprobs
from noria.server.encoders.echo import EchoedPrompt
from noria.server.encoders.reply import KEEP_ALIVE_COMMENT, ChoiceResult, Reply, members_of
from noria.server.encoders.token_names import finite
from noria.server.errors import ApiError
from noria.server.turn import ChoiceEvent

_KIND = "text_completion"
_PLAIN_REST = b',"logprobs":null,"finish_reason":null,"stop_reason":null'


class CompletionEncoder:
    """echoes: the prompts, when choices begin with theirs; else empty."""

    keep_alive = KEEP_ALIVE_COMMENT

    def __init__(self, reply: Reply, echoes: Sequence[EchoedPrompt] = ()) -> None:
        self._reply = reply
        self._options = reply.options
        self._names = reply.names
        self._echoes = echoes
        self._templates = reply.templates(_KIND, "text")
        # Streams: choices that have not given their prompt back, with what is known of its log-probabilities.
        self._unechoed: dict[int, list[TokenLogprobs]] = {}
        self._told_prompts: set[int] = set()  # streams: choices whose prompt's ids have been told

    def begin(self) -> bytes:
        if not self._echoes:
            return b""
        if self._options.logprobs:
            self._unechoed = {index: [] for index in range(len(self._templates))}
            return b""
        return b"".join(self._echo_chunk(index, ()) for index in range(len(self._templates)))

    def encode(self, event: ChoiceEvent) -> bytes:
        frames = self._echo(event) if event.index in self._unechoed else b""
        if self._reply.is_silent(event):
            return frames
        template = self._templates[event.index]
        return frames + template.chunk(orjson.dumps(event.text), self._rest(event), self._members())

    def end(self) -> bytes:
        return self._reply.closing(_KIND)

    def fail(self, error: ApiError) -> bytes:
        return self._reply.failing(error)

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        return self._reply.body(_KIND, [self._choice(choice) for choice in choices])

    def _choice(self, result: ChoiceResult) -> dict[str, Any]:
        echo = self._echo_of(result.index)
        choice: dict[str, Any] = {
            "index": result.index,
            "text": (echo.text if echo else "") + result.text,
            "logprobs": None,
            "finish_reason": result.finish,
            "stop_reason": result.stop_reason,
        }
        if self._options.logprobs:
            start = len(echo.text) if echo else 0
            arrays = self._arrays(result.logprobs, [start + offset for offset in result.text_offsets])
            if echo:
                prompt = self._prompt_arrays(echo, result.prompt_logprobs)
                arrays = {name: prompt[name] + values for name, values in arrays.items()}
            choice["logprobs"] = arrays
        if self._options.prompt_logprobs:
            choice["prompt_logprobs"] = self._reply.prompt_logprobs(result)
        if self._options.token_ids:
            choice["token_ids"] = result.token_ids
            choice["prompt_token_ids"] = self._prompt_of(result.index)
        return choice

    def _echo(self, event: ChoiceEvent) -> bytes:
        """The prompt as a choice's first chunk, once all its log-probabilities are there."""
        logprobs = self._unechoed[event.index]
        logprobs += event.prompt_logprobs
        if len(logprobs) < len(self._prompt_of(event.index)) - 1 and event.finish is None:
            return b""
        del self._unechoed[event.index]
        return self._echo_chunk(event.index, logprobs)

    def _echo_chunk(self, index: int, logprobs: Sequence[TokenLogprobs]) -> bytes:
        echo = self._echo_of(index)
        assert echo is not None
        arrays = self._prompt_arrays(echo, logprobs) if self._options.logprobs else None
        rest = members_of(
            {"logprobs": arrays, "finish_reason": None, "stop_reason": None, **self._prompt_ids(index)}
        )
        return self._templates[index].chunk(orjson.dumps(echo.text), rest, self._members())

    def _rest(self, event: ChoiceEvent) -> bytes:
        if self._reply.is_text_alone(event):
            return _PLAIN_REST
        arrays = None
        if self._options.logprobs and event.logprobs:
            echo = self._echo_of(event.index)
            start = len(echo.text) if echo else 0
            arrays = self._arrays(event.logprobs, [start + offset for offset in event.text_offsets])
        rest: dict[str, Any] = {
            "logprobs": arrays,
            "finish_reason": event.finish,
            "stop_reason": event.stop_reason,
        }
        if self._options.token_ids:
            rest |= {"token_ids": event.token_ids, **self._prompt_ids(event.index)}
        return members_of(rest)

    def _prompt_ids(self, index: int) -> dict[str, Any]:
        """The prompt's ids, for the first chunk of a choice when ids are asked for."""
        if not self._options.token_ids or index in self._told_prompts:
            return {}
        self._told_prompts.add(index)
        return {"prompt_token_ids": self._prompt_of(index)}

    def _prompt_of(self, index: int) -> Sequence[int]:
        return self._reply.turn.request.prompts[index // self._reply.turn.request.n]

    def _echo_of(self, index: int) -> EchoedPrompt | None:
        return self._echoes[index // self._reply.turn.request.n] if self._echoes else None

    def _prompt_arrays(self, echo: EchoedPrompt, logprobs: Sequence[TokenLogprobs]) -> dict[str, list]:
        rest = self._arrays(logprobs, echo.text_offsets[1:])
        first = {
            "text_offset": echo.text_offsets[0],
            "token_logprobs": None,
            "tokens": self._names.name(echo.token_ids[0]),
            "top_logprobs": None,
        }
        return {name: [first[name], *values] for name, values in rest.items()}

    def _arrays(self, logprobs: Sequence[TokenLogprobs], text_offsets: Sequence[int]) -> dict[str, list]:
        return {
            "text_offset": list(text_offsets),
            "token_logprobs": [finite(item.logprob) for item in logprobs],
            "tokens": [self._names.name(item.token_id) for item in logprobs],
            "top_logprobs": [self._names.top_by_name(item) for item in logprobs],
        }

    def _members(self) -> bytes:
        return members_of(self._reply.chunk_usage())
