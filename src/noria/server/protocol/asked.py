"""How much a body asks for, before anything about it is checked: as far as can be told from its JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request will be if it is one that can be served.

    max_tokens, timeout_s: None where nothing is stated.
    """

    num_sequences: int
    max_tokens: int | None
    ignores_eos: bool
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Spelling:
    """Where a protocol states it. max_tokens: fields, of which the first that is stated counts; none where texts are
    read and none is continued.

    has_choices, has_prompts: whether n, and several prompts, multiply the sequences.
    """

    max_tokens: tuple[str, ...]
    has_choices: bool = False
    has_prompts: bool = False


_READ_ONLY = Spelling(())  # counts as one text, whatever there are
SPELLINGS: Mapping[str, Spelling] = {
    "/v1/chat/completions": Spelling(("max_completion_tokens", "max_tokens"), has_choices=True),
    "/v1/completions": Spelling(("max_tokens",), has_choices=True, has_prompts=True),
    "/v1/responses": Spelling(("max_output_tokens",)),
    "/v1/messages": Spelling(("max_tokens",)),
    "/v1/embeddings": _READ_ONLY,
    "/pooling": _READ_ONLY,
    "/classify": _READ_ONLY,
    "/score": _READ_ONLY,
    "/v1/score": _READ_ONLY,
    "/rerank": _READ_ONLY,
    "/v1/rerank": _READ_ONLY,
    "/v2/rerank": _READ_ONLY,
}


class _Untold(Exception):
    """A field that is none; whoever checks the body says so."""


def asked_of(body: bytes, spelling: Spelling) -> Asked | None:
    """None for a body that cannot be told from: its fault is for others to name."""
    try:
        fields = orjson.loads(body)
        if not isinstance(fields, dict):
            return None
        num_choices = _whole(fields, "n") if spelling.has_choices else None
        num_prompts = _num_prompts(fields.get("prompt")) if spelling.has_prompts else 1
        stated = (_whole(fields, name) for name in spelling.max_tokens)
        max_tokens = next((most for most in stated if most is not None), None)
        return Asked(
            num_prompts * (1 if num_choices is None else num_choices),
            max_tokens,
            fields.get("ignore_eos") is True,
            _seconds(fields, "request_timeout"),
        )
    except (orjson.JSONDecodeError, _Untold):
        return None


def _num_prompts(prompt: Any) -> int:
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        return len(prompt)
    return 1


def _whole(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    if not is_whole or value < 0:
        raise _Untold
    return int(value)


def _seconds(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or value <= 0:
        raise _Untold
    return float(value)
