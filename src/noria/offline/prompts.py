"""The forms in which the offline API takes prompts and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast

from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams
from noria.tokenize.tokenizer import Tokenizer

# A text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}.
PromptType = str | Sequence[int] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str | None
    token_ids: tuple[int, ...]


def as_list(prompts: PromptType | Sequence[PromptType]) -> list[PromptType]:
    """One prompt or several: several."""
    if isinstance(prompts, (str, Mapping)) or (len(prompts) and isinstance(prompts[0], Integral)):
        return [cast(PromptType, prompts)]
    return list(cast(Sequence[PromptType], prompts))


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
    if not isinstance(prompt, Iterable):
        raise RequestError(
            f"a prompt is a text or a list of token ids, got {type(prompt).__name__}", "prompt"
        )
    ids = list(prompt)
    wrong = [token_id for token_id in ids if isinstance(token_id, bool) or not isinstance(token_id, Integral)]
    if wrong:
        raise RequestError(f"a prompt is a text or a list of token ids, got {wrong[0]!r:.40} in it", "prompt")
    return Prompt(None, tuple(int(token_id) for token_id in ids))


def params_for(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int, default: SamplingParams
) -> list[SamplingParams]:
    """Parameters for each of `count` prompts: the same for all, or one each. default: in place of None."""
    if params is None or isinstance(params, SamplingParams):
        return [params or default] * count
    if len(params) != count:
        raise RequestError(f"{len(params)} sampling params for {count} prompts: give one, or one each")
    return list(params)
