"""What the replies of all protocols have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from noria.core.plan import TokenLogprobs
from noria.parsers.parts import CallArguments, CallBegin, Content, Part, Reasoning, text_of
from noria.server.encoders.token_names import TokenNames
from noria.server.errors import ApiError, DeadlinePassed, openai_error
from noria.server.turn import ChoiceEvent, Turn

KEEP_ALIVE_COMMENT = b": keep-alive\n\n"
_DONE_FRAME = b"data: [DONE]\n\n"


def frame(content: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


def named_frame(kind: str, members: Mapping[str, Any]) -> bytes:
    """A server-sent event with a name, which its data repeats as `type`."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps({"type": kind, **members}))


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What identifies a reply. created: seconds since 1970."""

    id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """Which optional parts a reply has; each is there if its switch is on and not otherwise."""

    include_usage: bool = False  # a last chunk with usage, in streams
    continuous_usage: bool = False  # usage on every chunk
    cached_tokens: bool = False  # usage tells how much of the prompt was cached
    logprobs: bool = False
    prompt_logprobs: bool = False
    token_ids: bool = False


class Encoder(Protocol):
    """Writes a turn in one protocol's words. One for each reply.

    keep_alive: the frame that tells a client of a silent stream that it still runs.
    """

    keep_alive: bytes

    def begin(self) -> bytes:
        """What a stream opens with."""
        ...

    def encode(self, event: ChoiceEvent) -> bytes:
        """The frames of an event; nothing if it has nothing to say."""
        ...

    def end(self) -> bytes:
        """What a stream closes with."""
        ...

    def fail(self, error: ApiError) -> bytes:
        """What a stream closes with when it ends before its time."""
        ...

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        """The reply in one piece."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """arguments: JSON text, as the model wrote it; of a custom tool, its input."""

    id: str
    name: str
    arguments: str
    is_custom: bool = False


@dataclass(slots=True)
class ChoiceResult:
    """Everything a choice said.

    text_logprobs: those of `logprobs` that came with text for the user. unplaced: those that may come to be.
    """

    index: int
    parts: list[Part] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    text_logprobs: list[TokenLogprobs] = field(default_factory=list)
    unplaced: list[TokenLogprobs] = field(default_factory=list)
    text_offsets: list[int] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: str | None = None
    stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        """For the user."""
        return text_of(self.parts)

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> list[ToolCall]:
        arguments: dict[int, list[str]] = {}
        for part in self.parts:
            if isinstance(part, CallArguments):
                arguments.setdefault(part.index, []).append(part.text)
        begins = [part for part in self.parts if isinstance(part, CallBegin)]
        return [
            ToolCall(part.id, part.name, "".join(arguments.get(part.index, ())), part.is_custom)
            for part in begins
        ]

    def add(self, event: ChoiceEvent) -> None:
        self.parts += event.parts
        self.token_ids += event.token_ids
        self.logprobs += event.logprobs
        self.text_offsets += event.text_offsets
        self.prompt_logprobs += event.prompt_logprobs
        self.finish = event.finish
        self.stop_reason = event.stop_reason
        self._place(event)

    def _place(self, event: ChoiceEvent) -> None:
        self.unplaced += event.logprobs
        for part in event.parts:
            self.text_logprobs += self.unplaced if isinstance(part, Content) else ()
            self.unplaced = []
        if event.finish is not None and isinstance(self.parts[-1] if self.parts else Content(""), Content):
            self.text_logprobs += self.unplaced


async def gather(turn: Turn) -> list[ChoiceResult]:
    """Run the turn to its end. Raises ApiError when a sequence failed; when time was over, with what there is."""
    results = [ChoiceResult(index) for index in range(turn.num_choices)]
    try:
        while not turn.is_done:
            _add_all(results, await turn.events())
    except DeadlinePassed as error:
        texts = [result.text for result in results]
        error.partial = texts if any(texts) else []
        raise
    return results


def _add_all(results: list[ChoiceResult], events: Iterable[ChoiceEvent]) -> None:
    for event in events:
        results[event.index].add(event)


class ChunkTemplate:
    """Chunks of one choice. Their unchanging head and tail are encoded once; only what is new is escaped.

    A chunk: {id, object, created, model, choices: [{index, <payload>, <rest>}], <members>}
    """

    def __init__(self, head: ReplyHead, kind: str, index: int, payload_name: str) -> None:
        whole = {"id": head.id, "object": kind, "created": head.created, "model": head.model}
        opening = orjson.dumps(whole)[:-1] + b',"choices":[{"index":%d,' % index
        self._opening = b"data: " + opening + orjson.dumps(payload_name) + b":"

    def chunk(self, payload: bytes, rest: bytes, members: bytes = b"") -> bytes:
        """payload: JSON value. rest, members: what else the choice and the chunk hold, each from its comma on."""
        return b"".join((self._opening, payload, rest, b"}]", members, b"}\n\n"))


def members_of(values: dict[str, Any]) -> bytes:
    """JSON members to follow others, each with its comma; nothing for none."""
    return b"," + orjson.dumps(values)[1:-1] if values else b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the encoders of all protocols build on.

    kind, in the methods: the `object` that the protocol calls a whole reply, or a chunk of a stream.
    """

    turn: Turn
    head: ReplyHead
    options: ReplyOptions
    names: TokenNames

    def templates(self, kind: str, payload_name: str) -> list[ChunkTemplate]:
        """One for each choice."""
        return [ChunkTemplate(self.head, kind, index, payload_name) for index in range(self.turn.num_choices)]

    def body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = self.head
        return {
            "id": head.id,
            "object": kind,
            "created": head.created,
            "model": head.model,
            "choices": choices,
            "usage": self.usage(),
        }

    def closing(self, kind: str) -> bytes:
        """What a stream ends with: usage where it is asked for, and the end mark."""
        return (frame(self.body(kind, [])) if self.options.include_usage else b"") + _DONE_FRAME

    def failing(self, error: ApiError) -> bytes:
        """What a stream ends with that could not go on."""
        return frame(openai_error(error)) + _DONE_FRAME

    def is_silent(self, event: ChoiceEvent) -> bool:
        """There is nothing to say of it."""
        tells_tokens = event.token_ids and (self.options.logprobs or self.options.token_ids)
        return not event.parts and event.finish is None and not tells_tokens

    def is_text_alone(self, event: ChoiceEvent) -> bool:
        """There is nothing to say of it but what was said."""
        return event.finish is None and not self.options.logprobs and not self.options.token_ids

    def prompt_logprobs(self, result: ChoiceResult) -> list[dict[str, Any] | None]:
        """An item a prompt token; the first has no log-probability."""
        return [None, *(self.names.prompt_entry(item) for item in result.prompt_logprobs)]

    def usage(self) -> dict[str, Any]:
        """Of what has been said so far, as clients know it. Details are objects or not there, never null."""
        usage = self.turn.usage()
        told: dict[str, Any] = {
            "prompt_tokens": usage.num_prompt,
            "completion_tokens": usage.num_output,
            "total_tokens": usage.num_prompt + usage.num_output,
        }
        if self.options.cached_tokens:
            told["prompt_tokens_details"] = {"cached_tokens": usage.num_cached}
        if self.turn.request.reading.counts_reasoning:
            told["completion_tokens_details"] = {"reasoning_tokens": usage.num_reasoning}
        return told

    def chunk_usage(self) -> dict[str, Any]:
        """The member that a chunk tells usage with, where every chunk does."""
        return {"usage": self.usage()} if self.options.continuous_usage else {}
