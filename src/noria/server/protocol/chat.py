"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, WithJsonSchema

from noria.server.protocol.fields import GenerationFields, Switch, Text, Whole
from noria.server.protocol.messages import MESSAGES_SCHEMA


class ChatRendering(BaseModel):
    """What says how a chat becomes a prompt."""

    add_generation_prompt: Switch | None = None
    continue_final_message: Switch | None = None
    reasoning_effort: Text | None = None  # a variable of the chat template
    chat_template: Text | None = None
    documents: list[Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ChatCompletionRequest(ChatRendering, GenerationFields):
    """Fields beyond these pass with a line in the log, unless ignoring them would change the answer (400)."""

    # Checked by protocol.messages, which stops at the first fault and says where it is.
    messages: Annotated[Any, WithJsonSchema(MESSAGES_SCHEMA)]
    max_completion_tokens: Whole | None = None
    tools: list[Any] | None = None
    tool_choice: Text | dict[str, Any] | None = None
    parallel_tool_calls: Switch | None = None
    include_reasoning: Switch | None = None
    thinking_token_budget: Whole | None = None
    logprobs: Switch | None = None
    top_logprobs: Whole | None = None
    return_prompt_text: Switch | None = None
