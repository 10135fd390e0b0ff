"""The body of POST /v1/responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, WithJsonSchema

from noria.server.errors import ApiError
from noria.server.protocol.fields import SharedFields, Switch, Text, Whole
from noria.server.protocol.response_input import INPUT_SCHEMA
from noria.server.protocol.unsupported import (
    REFUSED_BY_OTHERS,
    REFUSED_BY_OTHERS_UNLESS,
    refuse_or_pass_over,
    unsupported,
)

INCLUDE_LOGPROBS = "message.output_text.logprobs"
_INCLUDE_SEALED = "reasoning.encrypted_content"
# What a reply can be asked to hold besides. Of the others there is nothing to tell where the server runs no tools.
_INCLUDABLE = (
    INCLUDE_LOGPROBS,
    _INCLUDE_SEALED,
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
_TRUNCATIONS = (None, "auto", "disabled")
_MAX_METADATA = 16

_REFUSED = REFUSED_BY_OTHERS | {
    "background",
    "conversation",
    "prompt",
    "moderation",
    "max_tokens",
    "messages",
}


class ResponsesRequest(SharedFields):
    """Fields beyond these pass with a line in the log, unless ignoring them would change the answer (400)."""

    model_config = ConfigDict(defer_build=True)  # what it takes to check it is made when the first one comes

    # Checked by protocol.response_input, which stops at the first fault and says where it is.
    input: Annotated[Any, WithJsonSchema(INPUT_SCHEMA)]
    instructions: Text | None = None
    max_output_tokens: Whole | None = None
    stop: Text | list[Any] | None = None
    top_logprobs: Whole | None = None
    include: list[Any] | None = None
    stream_options: dict[str, Any] | None = None
    previous_response_id: Text | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Text | dict[str, Any] | None = None
    parallel_tool_calls: Switch | None = None
    max_tool_calls: Whole | None = None  # of tools that servers run; there are none here
    thinking_token_budget: Whole | None = None
    truncation: Text | None = None
    store: Switch | None = None  # whatever it says, nothing is kept, and the reply says so
    chat_template_kwargs: dict[str, Any] | None = None
    # Told back, and without effect.
    metadata: dict[str, Any] | None = None
    user: Text | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None

    @property
    def wants_logprobs(self) -> bool:
        return INCLUDE_LOGPROBS in (self.include or ())

    @property
    def wants_sealed_reasoning(self) -> bool:
        return _INCLUDE_SEALED in (self.include or ())


def check_fields(fields: ResponsesRequest) -> None:
    """Raises ApiError for fields that cannot be honoured or contradict each other."""
    refuse_or_pass_over(fields.model_extra or {}, _REFUSED, REFUSED_BY_OTHERS_UNLESS)
    if fields.previous_response_id:
        raise ApiError(
            f"There is no response `{fields.previous_response_id[:200]}` to go on from: this server keeps none. "
            f"Send the earlier items again, in `input`.",
            404,
            "previous_response_id",
        )
    if fields.stream_options is not None and not fields.stream:
        raise ApiError("stream_options goes with `stream: true` only", param="stream_options")
    if fields.truncation not in _TRUNCATIONS:
        raise ApiError("truncation must be auto or disabled", param="truncation")
    _check_reasoning(fields.reasoning or {})
    _check_include(fields)
    _check_metadata(fields.metadata or {})


def _check_reasoning(reasoning: Mapping[str, Any]) -> None:
    if not isinstance(reasoning.get("effort"), (str, type(None))):
        raise ApiError("reasoning.effort must be a string", param="reasoning.effort")
    for name in ("summary", "generate_summary"):
        # "auto" leaves it to the server, which has none.
        if reasoning.get(name) not in (None, "auto"):
            raise unsupported(f"reasoning.{name}")


def _check_include(fields: ResponsesRequest) -> None:
    for name in fields.include or ():
        if name not in _INCLUDABLE:
            raise ApiError(
                f"include holds {name!r:.100}; known are {', '.join(_INCLUDABLE)}", param="include"
            )
    if fields.top_logprobs and not fields.wants_logprobs:
        raise ApiError(f"top_logprobs goes with `{INCLUDE_LOGPROBS}` in include only", param="top_logprobs")


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    if len(metadata) > _MAX_METADATA:
        raise ApiError(f"metadata must hold at most {_MAX_METADATA} pairs", param="metadata")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ApiError("metadata must map names to strings", param="metadata")
