"""The bodies of POST /tokenize and /detokenize, and of their answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from noria.server.protocol.chat import ChatRendering
from noria.server.protocol.fields import Switch, Text
from noria.server.protocol.messages import MESSAGES_SCHEMA
from noria.server.protocol.prompts import IDS_SCHEMA


class TokenizeRequest(ChatRendering):
    """A text as `prompt`, or a chat as `messages`: one of the two."""

    model_config = ConfigDict(extra="allow")

    model: Text | None = None
    prompt: Text | None = None
    messages: Annotated[Any, WithJsonSchema(MESSAGES_SCHEMA)] = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: Switch | None = None  # by default for a prompt, not for a chat
    return_token_strs: Switch | None = None


class TokenizeResponse(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = Field(description="The tokens as text, where asked for.")


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: Text | None = None
    # Checked by the handler, which stops at the first fault.
    tokens: Annotated[Any, WithJsonSchema(IDS_SCHEMA)]


class DetokenizeResponse(BaseModel):
    prompt: str


class TokenizerInfo(BaseModel):
    """As far as there are such: see a tokenizer_config.json."""

    model_config = ConfigDict(extra="allow")

    bos_token: str | None
    eos_token: str | None
    chat_template: str | None
    add_bos_token: bool
    model_max_length: int
    vocab_size: int
