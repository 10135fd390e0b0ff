"""The bodies of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from noria.server.errors import ApiError
from noria.server.protocol.anthropic_messages import MESSAGES_SCHEMA, SYSTEM_SCHEMA
from noria.server.protocol.fields import SharedFields, Text, Whole
from noria.server.protocol.unsupported import (
    REFUSED_BY_OTHERS,
    REFUSED_BY_OTHERS_UNLESS,
    refuse_or_pass_over,
    unsupported,
)

_REFUSED = REFUSED_BY_OTHERS | {"mcp_servers", "container", "output_format", "stop", "top_logprobs"}
_THINKING = ("enabled", "disabled", "adaptive")


class CountTokensRequest(SharedFields):
    """Fields beyond these pass with a line in the log, unless ignoring them would change the answer (400)."""

    model_config = ConfigDict(defer_build=True)  # what it takes to check it is made when the first one comes

    model: Text
    # Both are checked by protocol.anthropic_messages, which stops at the first fault and says where it is.
    messages: Annotated[Any, WithJsonSchema(MESSAGES_SCHEMA)]
    system: Annotated[Any, WithJsonSchema(SYSTEM_SCHEMA)] = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountTokensRequest):
    """A request for the next message."""

    max_tokens: Whole
    stop: list[Any] | None = Field(None, alias="stop_sequences")


def check_fields(fields: CountTokensRequest) -> None:
    """Raises ApiError for fields that cannot be honoured or contradict each other."""
    refuse_or_pass_over(fields.model_extra or {}, _REFUSED, REFUSED_BY_OTHERS_UNLESS)
    if fields.temperature is not None and not 0 <= fields.temperature <= 1:
        raise ApiError(
            f"temperature must be at least 0 and at most 1, got {fields.temperature:g}", param="temperature"
        )
    _check_tools(fields)
    _check_thinking(fields.thinking)
    output = fields.output_config or {}
    if not isinstance(output.get("effort"), (str, type(None))):
        raise ApiError("output_config.effort must be a string", param="output_config")


def _check_tools(fields: CountTokensRequest) -> None:
    choice = fields.tool_choice.get("type") if fields.tool_choice is not None else None
    if choice not in (None, "none", "auto") and not fields.tools:
        raise ApiError("When using `tool_choice`, `tools` must be set.", param="tool_choice")
    if fields.tools and choice != "none":
        raise unsupported("tools")


def _check_thinking(thinking: Mapping[str, Any] | None) -> None:
    kind = thinking.get("type") if thinking is not None else "disabled"
    if kind not in _THINKING:
        raise ApiError(f"thinking.type must be one of {', '.join(_THINKING)}", param="thinking")
    if kind == "enabled":  # "adaptive" leaves it to the model whether it thinks
        raise ApiError(
            'This server does not support `thinking` of type "enabled"; leave it out or disable it.',
            param="thinking",
        )
