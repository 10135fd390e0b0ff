"""The bodies of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema

from noria.server.errors import ApiError
from noria.server.protocol.anthropic_messages import MESSAGES_SCHEMA, SYSTEM_SCHEMA
from noria.server.protocol.fields import SharedFields, Text, Whole
from noria.server.protocol.unsupported import (
    REFUSED_BY_OTHERS,
    REFUSED_BY_OTHERS_UNLESS,
    refuse_or_pass_over,
)

_REFUSED = REFUSED_BY_OTHERS | {"mcp_servers", "container", "output_format", "stop", "top_logprobs"}
_THINKING = {"enabled": True, "disabled": False, "adaptive": None}
_MIN_BUDGET = 1024  # tokens; the protocol's own bound


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

    @property
    def thinks(self) -> bool | None:
        """Whether the model shall reason; None: as it likes."""
        return _THINKING[self.thinking["type"]] if self.thinking is not None else None


class MessagesRequest(CountTokensRequest):
    """A request for the next message."""

    max_tokens: Whole
    thinking_token_budget: Whole | None = None
    stop: list[Any] | None = Field(None, alias="stop_sequences")


def check_fields(fields: CountTokensRequest) -> None:
    """Raises ApiError for fields that cannot be honoured or contradict each other."""
    refuse_or_pass_over(fields.model_extra or {}, _REFUSED, REFUSED_BY_OTHERS_UNLESS)
    if fields.temperature is not None and not 0 <= fields.temperature <= 1:
        raise ApiError(
            f"temperature must be at least 0 and at most 1, got {fields.temperature:g}", param="temperature"
        )
    _check_thinking(fields)
    output = fields.output_config or {}
    if not isinstance(output.get("effort"), (str, type(None))):
        raise ApiError("output_config.effort must be a string", param="output_config")


def _check_thinking(fields: CountTokensRequest) -> None:
    thinking = fields.thinking
    if thinking is None:
        return
    if thinking.get("type") not in tuple(_THINKING):  # compared and not looked up: it may be any JSON
        raise ApiError(f"thinking.type must be one of {', '.join(_THINKING)}", param="thinking")
    budget = thinking.get("budget_tokens")
    if thinking["type"] != "enabled" or budget is None:
        return
    most = fields.max_tokens if isinstance(fields, MessagesRequest) else None
    is_whole = isinstance(budget, int) and not isinstance(budget, bool)
    if not is_whole or budget < _MIN_BUDGET or (most is not None and budget >= most):
        raise ApiError(
            f"thinking.budget_tokens must be a whole number, at least {_MIN_BUDGET} and below max_tokens"
            + (f" ({most})" if most is not None else ""),
            param="thinking",
        )
