"""What a user may ask of the server's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from noria.config.option import MAPPING, SWITCH, WHOLE, check_values, option


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What answers hold, and what requests that do not say get."""

    TITLE: ClassVar[str] = "Answers"

    override_generation_config: Mapping[str, Any] | None = option(
        None,
        "Sampling values for requests that state none, before those of generation_config: temperature, top_p, top_k, "
        "min_p, repetition_penalty.",
        MAPPING,
        default_words="none",
    )
    default_chat_template_kwargs: Mapping[str, Any] | None = option(
        None,
        "Variables for the chat template, under those that a request brings in `chat_template_kwargs`.",
        MAPPING,
        default_words="none",
    )
    trust_request_chat_template: bool = option(
        False,
        "Let a request bring its own `chat_template`. It runs in a sandbox with bounds on time and output, but it is "
        "a program of the client's on this machine.",
        SWITCH,
    )
    enable_force_include_usage: bool = option(
        False, "End every stream with its usage, asked for or not.", SWITCH
    )
    return_tokens_as_token_ids: bool = option(
        False,
        "Name tokens in log-probabilities as `token_id:N` unless the request says otherwise: exact where several "
        "tokens share a text.",
        SWITCH,
    )
    stream_interval: int = option(
        1,
        "Tokens of an output that one chunk of a stream gathers, after the first. More cost a client less, and come "
        "in bigger pieces.",
        WHOLE,
        low=1,
    )
    enable_tokenizer_info_endpoint: bool = option(
        False, "Answer /tokenizer_info with the special tokens and the chat template.", SWITCH
    )

    def __post_init__(self) -> None:
        check_values(self)
