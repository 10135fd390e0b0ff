"""The request fields that several protocols share, and the types they are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _without_point(value: Any) -> Any:
    # JSON knows no whole numbers: 10.0 is as good a 10 as any.
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Strict: text is not a number and a number is not a switch, so that a slip is told and not guessed at.
Whole = Annotated[int, Field(strict=True), BeforeValidator(_without_point)]
Number = Annotated[float, Field(strict=True)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]


class StreamOptions(BaseModel):
    """What a stream tells besides its text."""

    model_config = ConfigDict(extra="allow")

    include_usage: Switch | None = None
    continuous_usage_stats: Switch | None = None


class SharedFields(BaseModel):
    """What every generating route honours, its protocol's own or not. A field that is null counts as not stated.

    Ranges, and what is in lists and maps, are checked by SamplingParams, which names the field and stops at the
    first fault. (Here each of a million bad items would become an error of its own.)
    """

    model_config = ConfigDict(extra="allow", title="Generation")

    model: Text | None = None
    min_tokens: Whole | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Whole | None = None
    min_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    logit_bias: dict[str, Any] | None = None
    allowed_token_ids: list[Any] | None = None
    bad_words: list[Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    seed: Whole | None = None
    stop_token_ids: list[Any] | None = None
    include_stop_str_in_output: Switch | None = None
    ignore_eos: Switch | None = None
    sampler: dict[str, Any] | None = None  # a decoding rule of an installed package
    skip_special_tokens: Switch | None = None
    stream: Switch | None = None
    stream_interval: Whole | None = None
    truncate_prompt_tokens: Whole | None = None
    truncation_side: Text | None = None
    cache_salt: Text | None = None
    priority: Whole | None = None
    request_timeout: Number | None = None  # seconds


class GenerationFields(SharedFields):
    """What chat and text completions honour besides."""

    n: Whole | None = None
    max_tokens: Whole | None = None
    stop: Text | list[Any] | None = None
    prompt_logprobs: Whole | None = None
    logprob_token_ids: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    stream_options: StreamOptions | None = None
    echo: Switch | None = None
    add_special_tokens: Switch | None = None
    return_token_ids: Switch | None = None
    return_tokens_as_token_ids: Switch | None = None
    request_id: Text | None = None
