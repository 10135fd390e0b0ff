"""The `prompt` of a completion request: text or token ids, one or several."""

from __future__ import annotations

from typing import Any

from noria.server.errors import ApiError

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
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

_KINDS = "prompt must be a string, a list of strings, a list of token ids or a list of such lists"


def split_prompts(prompt: Any, max_prompts: int) -> list[Prompt]:
    """The prompts of a request, in order. Raises ApiError for an empty one and for any other kind of value."""
    if isinstance(prompt, str):
        prompts: list[Any] = [prompt]
    elif not isinstance(prompt, list):
        raise ApiError(f"{_KINDS}, got {_name(prompt)}", param="prompt")
    elif not prompt:
        raise empty_prompt()
    else:
        prompts = [prompt] if isinstance(prompt[0], (int, float)) else prompt
    if len(prompts) > max_prompts:
        raise ApiError(
            f"prompt holds {len(prompts)} prompts; one request may have {max_prompts}", param="prompt"
        )
    kind = type(prompts[0])
    return [_checked(item, kind) for item in prompts]


def empty_prompt() -> ApiError:
    return ApiError("prompt is empty; it needs at least one token", param="prompt")


def _checked(item: Any, kind: type) -> Prompt:
    if not isinstance(item, (str, list)) or type(item) is not kind:
        raise ApiError(f"{_KINDS}, got one that also holds {_name(item)}", param="prompt")
    if not item:
        raise empty_prompt()
    if isinstance(item, str):
        return item
    for token_id in item:
        if type(token_id) is not int:  # bool is an int to isinstance
            raise ApiError(f"{_KINDS}; {_name(token_id)} is not a token id", param="prompt")
    return tuple(item)


def _name(value: Any) -> str:
    names = {str: "a string", list: "a list", dict: "an object", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
