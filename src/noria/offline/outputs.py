"""What the offline API returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from noria.core.plan import TokenLogprobs
from noria.parsers.parts import CallArguments, CallBegin, Content, Part


@dataclass
class ToolCall:
    """A call that an answer makes. arguments: the JSON text of an object, or what the model wrote as one; of a custom
    tool, its input.
    """

    id: str
    name: str
    arguments: str = ""
    is_custom: bool = False


@dataclass
class CompletionOutput:
    """One output of a prompt.

    token_ids: a stop token included; text: without it, and of a chat what is for the user alone: reasoning (None: the
    answer has none) and tool_calls are told apart. logprobs: one entry a token, when asked for.
    finish_reason: stop | length | error | fault (its logits are no numbers) | lost (the engine died); None while it
    is being made. stop_reason: the stop string, or the one of stop_token_ids, that ended it. error: what went wrong,
    for error, fault and lost.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)

    def add(self, part: Part) -> None:
        if isinstance(part, Content):
            self.text += part.text
        elif isinstance(part, CallBegin):
            self.tool_calls.append(ToolCall(part.id, part.name, is_custom=part.is_custom))
        elif isinstance(part, CallArguments):
            self.tool_calls[part.index].arguments += part.text
        else:
            self.reasoning = (self.reasoning or "") + part.text


@dataclass
class RequestOutput:
    """A prompt and its outputs.

    prompt: the text, None for a prompt of token ids. prompt_logprobs: one entry a prompt token, the first
    None, when asked for. num_cached_tokens: prompt tokens that came from the prefix cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0
