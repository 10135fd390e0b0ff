"""Conversations of ShareGPT: the first question as the prompt, its answer's length as the output's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from noria.bench.pieces import Planned
from noria.config.errors import ConfigError

# Tokens of a text.
Count = Callable[[str], int]

_FEWEST_TOKENS = 4  # of a question or an answer; shorter ones are leftovers of the collection


def read_sharegpt(
    path: str, count: int | None, max_model_len: int | None, count_tokens: Count | None
) -> Iterator[Planned]:
    """At most `count` conversations, in the file's order, that fit the model. Raises ConfigError."""
    if count_tokens is None:
        raise ConfigError(
            f"{path} holds texts, whose lengths need a tokenizer: the server has no /tokenize, so give --tokenizer"
        )
    index = 0
    for question, answer in _pairs(path):
        if count is not None and index >= count:
            break
        num_prompt, num_output = count_tokens(question), count_tokens(answer)
        fits = max_model_len is None or num_prompt + num_output <= max_model_len
        if fits and min(num_prompt, num_output) >= _FEWEST_TOKENS:
            yield Planned(index, (), num_output, text=question)
            index += 1
    if not index:
        raise ConfigError(f"{path} holds no conversation that fits the model")


def _pairs(path: str) -> Iterator[tuple[str, str]]:
    for conversation in _read(path):
        said = conversation.get("conversations") if isinstance(conversation, dict) else None
        if not isinstance(said, list) or len(said) < 2:
            continue
        question, answer = (str(turn.get("value") or "") for turn in said[:2])
        if question and answer:
            yield question, answer


def _read(path: str) -> list[Any]:
    try:
        content = orjson.loads(Path(path).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as ShareGPT's JSON: {error}") from error
    if not isinstance(content, list):
        raise ConfigError(f"{path} must hold a list of conversations")
    return content
