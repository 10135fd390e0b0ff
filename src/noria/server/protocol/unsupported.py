"""Fields that this server knows and does not honour: some may be passed over, some must be refused.

A field may be passed over when the answer is as good without it. One that asks for a different answer is
refused, because an answer that quietly lacks what was asked for is a wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from noria.server.errors import ApiError

logger = logging.getLogger("noria.server")

_MAX_LOGGED = 10

# Refused unless the value asks for nothing: null, false, or an empty list, object or string.
REFUSED = frozenset((
    "tools", "functions", "audio",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "guided_json_object", "guided_decoding_backend", "guided_whitespace_pattern", "structural_tag",
    "prompt_embeds",
    "logprob_token_ids", "logits_processors", "use_beam_search", "documents", "chat_template",
    "thinking_token_budget", "reasoning_effort", "kv_transfer_params", "ec_transfer_params",
    "repetition_detection", "return_prompt_text", "vllm_xargs", "mm_processor_kwargs",
    "media_io_kwargs",
))  # fmt: skip

# Refused unless the value is one of these.
REFUSED_UNLESS: Mapping[str, tuple[Any, ...]] = {
    "suffix": (None,),
    "length_penalty": (None, 1, 1.0),
    "include_reasoning": (None, True),
    "tool_choice": (None, "none"),
    "function_call": (None, "none"),
    "modalities": (None, [], ["text"]),
}

# The same of protocols that hold a chat in words of their own: what only the OpenAI protocols spell so is refused too.
REFUSED_BY_OTHERS = REFUSED | {
    "max_completion_tokens", "response_format", "logprobs", "prompt_logprobs", "echo",
    "return_token_ids", "return_tokens_as_token_ids", "add_special_tokens", "continue_final_message",
}  # fmt: skip
REFUSED_BY_OTHERS_UNLESS: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "length_penalty": (None, 1),
    "add_generation_prompt": (None, True),
    "include_reasoning": (None, True),
    "parallel_tool_calls": (None, True),
}

# What to send in place of what older clients know.
_INSTEAD = {
    f"guided_{old}": f' Send `structured_outputs`: {{"{new}": ...}}.'
    for old, new in (
        ("json", "json"), ("regex", "regex"), ("choice", "choice"), ("grammar", "grammar"),
        ("json_object", "json_object"),
    )
} | {"functions": " Send `tools`.", "function_call": " Send `tool_choice`."}  # fmt: skip

# Not refused beside a choice of "none": they are not shown to the model then. (Functions are tools' old name.)
_CHOICE_OF = {"tools": "tool_choice", "functions": "function_call"}


def check_unhonoured(stated: Mapping[str, Any]) -> None:
    """Refuse what must be refused; tell the log, in one line, what is passed over.

    stated: the request's fields that its model does not declare. Raises ApiError naming the field.
    """
    _check_tool_choice(stated)
    settled = {name for name, choice in _CHOICE_OF.items() if stated.get(choice) == "none"}
    rest = {name: value for name, value in stated.items() if name not in settled}
    refuse_or_pass_over(rest, REFUSED, REFUSED_UNLESS)


def refuse_or_pass_over(
    stated: Mapping[str, Any], refused: Collection[str], refused_unless: Mapping[str, tuple[Any, ...]]
) -> None:
    """As check_unhonoured, by the tables of any protocol: see REFUSED and REFUSED_UNLESS."""
    passed_over: list[str] = []
    for name, value in stated.items():
        if name in refused:
            if not asks_for_nothing(value):
                raise unsupported(name)
        elif name in refused_unless:
            if value not in refused_unless[name]:
                raise unsupported(name)
        else:
            passed_over.append(name)
    if passed_over:
        names = ", ".join(repr(name[:100]) for name in passed_over[:_MAX_LOGGED])
        more = f" and {len(passed_over) - _MAX_LOGGED} more" if len(passed_over) > _MAX_LOGGED else ""
        logger.info("request fields without effect on this server: %s%s", names, more)


def asks_for_nothing(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})


def unsupported(name: str) -> ApiError:
    remedy = _INSTEAD.get(name, "")
    return ApiError(f"This server does not support `{name}`.{remedy}", param=name)


def _check_tool_choice(stated: Mapping[str, Any]) -> None:
    asks_for_tools = stated.get("tool_choice") not in REFUSED_UNLESS["tool_choice"]
    if asks_for_tools and not stated.get("tools"):
        raise ApiError("When using `tool_choice`, `tools` must be set.", param="tool_choice")
