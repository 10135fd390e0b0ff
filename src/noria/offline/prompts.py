"""The forms in which the offline API takes prompts and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar, cast

from noria.config.errors import RequestError
from noria.parsers.reading import PLAIN_READING, Reading
from noria.sampling.params import SamplingParams
from noria.tokenize.tokenizer import Tokenizer

# A text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}.
PromptType = str | Sequence[int] | Mapping[str, Any]
Conversation = Sequence[Mapping[str, Any]]

Item = TypeVar("Item")
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Prompt:
    """reading: how its answers are read."""

    text: str | None
    token_ids: tuple[int, ...]
    reading: Reading = PLAIN_READING


def as_list(prompts: PromptType | Sequence[PromptType]) -> list[PromptType]:
    """One prompt or several: several. Raises RequestError for anything else."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if isinstance(prompts, (bytes, bytearray)) or not isinstance(prompts, Iterable):
        raise RequestError(f"prompts are texts or lists of token ids, got {type(prompts).__name__}", "prompt")
    several: list[Any] = list(prompts)
    return [several] if several and isinstance(several[0], Integral) else several


def as_conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """One conversation or several: several. Raises RequestError for anything else."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise RequestError(
            f'a conversation is a list of {{"role", "content"}}, got {type(messages).__name__}', "messages"
        )
    several: list[Any] = list(messages)
    return [several] if several and isinstance(several[0], Mapping) else several


def each(items: Sequence[Item], read: Callable[[Item], Read]) -> list[Read]:
    """read(item) of each; a RequestError says which item it is about."""
    results = []
    for number, item in enumerate(items, 1):
        try:
            results.append(read(item))
        except RequestError as error:
            if len(items) == 1:
                raise
            raise RequestError(f"prompt {number} of {len(items)}: {error}", error.param) from error
    return results


def read_prompt(prompt: PromptType, tokenizer: Tokenizer) -> Prompt:
    """Raises RequestError for a prompt of another form."""
    if isinstance(prompt, Mapping):
        known = [key for key in ("prompt_token_ids", "prompt") if key in prompt]
        if len(known) != 1 or len(prompt) != 1:
            raise RequestError(
                f'a prompt mapping holds "prompt" or "prompt_token_ids" and nothing else, got {sorted(prompt)}',
                "prompt",
            )
        prompt = prompt[known[0]]
    if isinstance(prompt, str):
        return Prompt(prompt, tuple(tokenizer.encode(prompt)))
    if isinstance(prompt, (bytes, bytearray)) or not isinstance(prompt, Iterable):
        raise RequestError(
            f"a prompt is a text or a list of token ids, got {type(prompt).__name__}", "prompt"
        )
    ids = list(prompt)
    wrong = [token_id for token_id in ids if isinstance(token_id, bool) or not isinstance(token_id, Integral)]
    if wrong:
        raise RequestError(f"a prompt is a text or a list of token ids, got {wrong[0]!r:.40} in it", "prompt")
    return Prompt(None, tuple(int(cast(int, token_id)) for token_id in ids))


def params_for(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int, default: SamplingParams
) -> list[SamplingParams]:
    """Parameters for each of `count` prompts: the same for all, or one each. default: in place of None."""
    if params is None or isinstance(params, SamplingParams):
        return [params or default] * count
    if not isinstance(params, Sequence) or not all(isinstance(one, SamplingParams) for one in params):
        raise RequestError(f"sampling params are SamplingParams, one or one each, got {params!r:.60}")
    if len(params) != count:
        raise RequestError(f"{len(params)} sampling params for {count} prompts: give one, or one each")
    return list(params)
