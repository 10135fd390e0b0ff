"""The `prompt` of a completion request: text or token ids, one or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from noria.server.errors import ApiError

IDS_SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_IDS = {**IDS_SCHEMA, "minItems": 1}
_TEXT = {"type": "string", "minLength": 1}
PROMPT_SCHEMA = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
}

# One prompt: its text, or its token ids.
Prompt = str | tuple[int, ...]

_KINDS = "{field} must be a string, a list of strings, a list of token ids or a list of such lists"


def split_prompts(prompt: Any, max_prompts: int, field: str = "prompt") -> list[Prompt]:
    """The prompts of a request, in order. field: where they came in.

    Raises ApiError for an empty one and for any other kind of value.
    """
    if isinstance(prompt, str):
        prompts: list[Any] = [prompt]
    elif not isinstance(prompt, list):
        raise _no_prompt(field, f", got {_name(prompt)}")
    elif not prompt:
        raise empty_prompt(field)
    else:
        prompts = [prompt] if isinstance(prompt[0], (int, float)) else prompt
    if len(prompts) > max_prompts:
        raise ApiError(
            f"{field} holds {len(prompts)} prompts; one request may have {max_prompts}", param=field
        )
    kind = type(prompts[0])
    return [_checked(item, kind, field) for item in prompts]


def empty_prompt(field: str = "prompt") -> ApiError:
    return ApiError(f"{field} is empty; it needs at least one token", param=field)


def _no_prompt(field: str, what: str) -> ApiError:
    return ApiError(_KINDS.format(field=field) + what, param=field)


@dataclass(frozen=True, slots=True)
class Truncation:
    """How much of a prompt counts. max_tokens: None for all of it, -1 for as much as leaves room for the output.

    keeps_end: whether its end is kept, or its beginning.
    """

    max_tokens: int | None = None
    keeps_end: bool = True

    @classmethod
    def of(cls, max_tokens: int | None, side: str | None) -> Truncation:
        """Of the fields truncate_prompt_tokens and truncation_side, the end to cut. Raises ApiError."""
        if max_tokens is not None and max_tokens != -1 and max_tokens < 1:
            raise ApiError(
                f"truncate_prompt_tokens must be at least 1, or -1, got {max_tokens}",
                param="truncate_prompt_tokens",
            )
        if side not in (None, "left", "right"):
            raise ApiError(
                f"truncation_side must be left or right, got {side!r:.50}", param="truncation_side"
            )
        return cls(max_tokens, side != "right")

    def apply(self, token_ids: Sequence[int], room: int) -> tuple[int, ...]:
        """room: tokens that leave room for the output."""
        most = max(room, 1) if self.max_tokens == -1 else self.max_tokens
        if most is None or most >= len(token_ids):
            return tuple(token_ids)
        return tuple(token_ids[-most:] if self.keeps_end else token_ids[:most])


def checked_ids(value: Any, field: str) -> tuple[int, ...]:
    """A list of token ids. Raises ApiError that blames `field`."""
    if not isinstance(value, list):
        raise ApiError(f"{field} must be a list of token ids, got {_name(value)}", param=field)
    for token_id in value:
        if not _is_id(token_id):
            raise ApiError(f"{field} must hold token ids; {_name(token_id)} is none", param=field)
    return tuple(map(int, value))


def _checked(item: Any, kind: type, field: str) -> Prompt:
    if not isinstance(item, (str, list)) or type(item) is not kind:
        raise _no_prompt(field, f", got one that also holds {_name(item)}")
    if not item:
        raise empty_prompt(field)
    if isinstance(item, str):
        return item
    for token_id in item:
        if not _is_id(token_id):
            raise _no_prompt(field, f"; {_name(token_id)} is not a token id")
    return tuple(map(int, item))


def _is_id(value: Any) -> bool:
    # bool is an int to isinstance. JSON knows no whole numbers: 10.0 is as good a 10 as any.
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _name(value: Any) -> str:
    names = {str: "a string", list: "a list", dict: "an object", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
